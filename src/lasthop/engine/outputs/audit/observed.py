"""Adds the observations of proxies to rows of the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from lasthop.engine.outputs.audit.certificates import CertificateReport, Role, distinct_certificates
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.plan.observation import MAX_CERTIFICATES, EndpointSeen, HopSeen, LeafCertificate
from lasthop.engine.plan.reasons import REF_NOT_PERMITTED
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.hops.observed import port_states, present_endpoints, seen_now
from lasthop.engine.store.graph import Graph


def hops_of(report: HopReport) -> list[Hop]:
    """Returns the hops that share a row: all protocols that policies apply to. References without a ReferenceGrant have none:
    other routes may use the hop."""
    if report.reason == REF_NOT_PERMITTED:
        return []
    protocols = [report.outside] if report.outside else [protocol for protocol in Protocol if protocol.policed]
    return [Hop(report.gateway, report.backend, report.port, protocol) for protocol in protocols]


def observed(g: Graph, report: HopReport, seen: Callable[[Hop], HopSeen | None]) -> HopReport:
    """Adds the observations to a row, if there are any."""
    return with_figures(g, report, {hop: hop_seen for hop in hops_of(report) if (hop_seen := seen(hop))})


def with_figures(g: Graph, report: HopReport, seen: Mapping[Hop, HopSeen]) -> HopReport:
    """Adds the sums over the observed hops to a row."""
    if not seen:
        return report
    seen = {hop: seen_now(g, hop, hop_seen) for hop, hop_seen in seen.items()}
    (state,), figures = port_states(g, seen), list(seen.values())
    tls = [endpoint for hop, hop_seen in seen.items() for endpoint in _over_tls(g, report, hop, hop_seen)]
    leaves = {*filter(None, (endpoint.certificate for endpoint in tls))}

    def of_all(name: str) -> map[Any]:
        return map(attrgetter(name), figures)

    part = Observed(
        state.health,
        state.since,
        max(of_all("last_success")),
        max(of_all("last_failure")),
        sum(of_all("handshakes")),
        sum(of_all("handshake_failures")),
        sum(of_all("connect_failures")),
        state.failures if state.health.bad else (),
        tuple(sorted(leaves, key=lambda leaf: leaf.not_after)[:MAX_CERTIFICATES]),
        tuple(sorted({endpoint.tls_version for endpoint in tls})),
        state.endpoints,
        tuple(_ejected(figures, state.ejected)),
        sum(of_all("traffic.requests")),
        sum(of_all("traffic.errors")),
    )
    return msgspec.structs.replace(report, observed=part)


def _ejected(figures: Iterable[HopSeen], addresses: Iterable[str]) -> Iterator[tuple[str, float]]:
    seen = [endpoint for hop_seen in figures for endpoint in hop_seen.endpoints if endpoint.ejected_since]
    for address in addresses:
        if since := [endpoint.ejected_since for endpoint in seen if endpoint.address == address]:
            yield address, min(since)


def _over_tls(g: Graph, report: HopReport, hop: Hop, seen: HopSeen) -> list[EndpointSeen]:
    """Returns the existing endpoints with observed TLS connections, if the hop uses TLS now."""
    endpoints = [endpoint for endpoint in seen.endpoints if endpoint.tls_version]
    if not endpoints or report.outside or report.in_effect is Strength.PLAINTEXT:
        return []
    present = present_endpoints(g, *hop[1:])
    return endpoints if present is None else [endpoint for endpoint in endpoints if endpoint.address in present]


def leaves(hops: Iterable[HopReport]) -> list[CertificateReport]:
    """Returns the certificates that backends presented, once per port, the first to expire first."""
    return distinct_certificates(tuple((_leaf(hop, leaf), hop.gateway) for leaf in leaves_of(hop)) for hop in hops)


def leaves_of(hop: HopReport) -> tuple[LeafCertificate, ...]:
    return hop.observed.certificates if hop.observed else ()


def name(leaf: LeafCertificate) -> str:
    return leaf.subject or ", ".join(leaf.names[:3]) or "a certificate without a name"


def _leaf(hop: HopReport, leaf: LeafCertificate) -> CertificateReport:
    report = CertificateReport(leaf.not_after, Role.BACKEND, hop.backend, name(leaf), not_before=leaf.not_before)
    return msgspec.structs.replace(report, file=hop.file, line=hop.line, port=hop.port)
