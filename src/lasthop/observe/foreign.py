"""What is believed of a report that another process has made: what it says of its own Gateway, within bounds.

A proxy may have been taken over by whoever sends it traffic, and its reports end in statuses and on pages.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.observe.tally import MAX_HOPS
from lasthop.observe.words import cut, shown
from lasthop.plan.observation import MAX_ENDPOINTS, EndpointSeen, HopSeen, ProxyReport

_MAX_KINDS: Final = 30
"""Of TLS failures that Envoy counts."""


def believed(report: ProxyReport, gateway: Key) -> ProxyReport:
    """Returns the part of a report of this Gateway's proxy that may be shown, with every text printable and cut."""
    hops = [(hop, seen) for hop, seen in report.hops.items() if hop.gateway == gateway][:MAX_HOPS]
    return ProxyReport(
        gateway,
        cut(report.proxy),
        report.since,
        report.at,
        {hop: _hop(seen) for hop, seen in hops},
        dict([*report.routes.items()][:MAX_HOPS]),
    )


def _hop(seen: HopSeen) -> HopSeen:
    tls = {cut(name): count for name, count in [*seen.tls_failures.items()][:_MAX_KINDS]}
    endpoints = tuple(map(_endpoint, seen.endpoints[:MAX_ENDPOINTS]))
    return msgspec.structs.replace(seen, tls_failures=tls, endpoints=endpoints)


def _endpoint(seen: EndpointSeen) -> EndpointSeen:
    texts = {name: cut(getattr(seen, name)) for name in ("address", "failure", "tls_version", "cipher", "config")}
    return msgspec.structs.replace(seen, **texts, certificate=shown(seen.certificate))
