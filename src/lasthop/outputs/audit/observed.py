"""What proxies have seen of a line of the audit: beside what is asked for, what happened."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lasthop.api.meta import Key
from lasthop.outputs.audit.hops import HopReport, Manner, Observed
from lasthop.plan.observation import MAX_CERTIFICATES, HopSeen
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.observed import port_states
from lasthop.store.graph import Graph

_OTHER = {Manner.PASSTHROUGH: Protocol.PASSTHROUGH, Manner.UDP: Protocol.UDP}


def hops_of(report: HopReport) -> list[Hop]:
    """Returns the hops that share a line: all protocols that policies apply to."""
    other = _OTHER.get(report.manner)
    protocols = [other] if other else [protocol for protocol in Protocol if protocol.policed]
    gateway, backend = _key("Gateway", report.gateway), _key(report.kind, report.backend)
    return [Hop(gateway, backend, report.port, protocol) for protocol in protocols]


def observed(g: Graph, report: HopReport, seen: Callable[[Hop], HopSeen | None]) -> HopReport:
    """Returns the line with what was seen; as it is where nothing was."""
    hops = hops_of(report)
    figures = [found for hop in hops if (found := seen(hop))]
    if not figures:
        return report
    (state,) = port_states(g, hops)
    leaves = {each.certificate for found in figures for each in found.endpoints if each.certificate}
    part = Observed(
        state.health,
        state.since,
        max(found.last_success for found in figures),
        max(found.last_failure for found in figures),
        sum(found.handshakes for found in figures),
        sum(found.handshake_failures for found in figures),
        sum(found.connect_failures for found in figures),
        state.failures if state.health.bad else (),
        tuple(sorted(leaves, key=lambda leaf: leaf.not_after)[:MAX_CERTIFICATES]),
        tuple(sorted({each.tls_version for found in figures for each in found.endpoints if each.tls_version})),
    )
    return msgspec.structs.replace(report, observed=part)


def _key(kind: str, path: str) -> Key:
    namespace, _, name = path.rpartition("/")
    return Key(kind, namespace, name)
