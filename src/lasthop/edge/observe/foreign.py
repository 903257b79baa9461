"""Filters a report of another process: keeps the parts of its own Gateway, within bounds.

A proxy may have been compromised through its traffic, its credentials are in the Gateway's own namespace, and its reports
reach statuses and pages. The decoder has checked every number (`plan/observation.py`); this module drops unknown parts.
"""

from __future__ import annotations

from collections.abc import Container, Generator
from typing import Final, Protocol

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.words import cut, shown
from lasthop.engine.plan.observation import LATENCY_BOUNDS, MAX_ENDPOINTS, EndpointSeen, HopSeen, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Hop

_MAX_KINDS: Final = 30
"""Kinds of TLS failures that Envoy counts."""


class GatewayParts(Protocol):
    def addresses(self, hop: Hop) -> Container[str] | None:
        """Returns the addresses of a hop's endpoints; None if the hop does not exist."""

    def serves(self, gateway: Key, route: Key) -> bool:
        """Returns whether the route is attached to the Gateway."""


class _NoParts(GatewayParts):
    """Declares no parts, for a replica that accepts no reports."""

    def addresses(self, hop: Hop) -> None:
        return None

    def serves(self, gateway: Key, route: Key) -> bool:
        return False


NO_PARTS: Final = _NoParts()


def filtered_report(report: ProxyReport, gateway: Key, parts: GatewayParts) -> Generator[None, None, ProxyReport]:
    """Returns the parts of a report that may be shown for this Gateway, with every text printable and shortened. Yields after
    each part, because there may be thousands."""
    hops: dict[Hop, HopSeen] = {}
    for hop, seen in report.hops.items():
        addresses = parts.addresses(hop) if hop.gateway == gateway else None
        if addresses is not None:
            hops[hop] = _hop(seen, addresses)
        yield
    routes: dict[Key, Traffic] = {}
    for route, traffic in report.routes.items():
        if parts.serves(gateway, route):
            routes[route] = _traffic(traffic)
        yield
    return ProxyReport(gateway, cut(report.proxy), report.since, report.at, hops, routes)


def _hop(seen: HopSeen, addresses: Container[str]) -> HopSeen:
    tls = {cut(name): count for name, count in [*seen.tls_failures.items()][:_MAX_KINDS]}
    existing = [endpoint for endpoint in seen.endpoints if not endpoint.address or endpoint.address in addresses]
    endpoints = tuple(map(_endpoint, existing[:MAX_ENDPOINTS]))
    return msgspec.structs.replace(seen, tls_failures=tls, endpoints=endpoints, traffic=_traffic(seen.traffic))


def _endpoint(seen: EndpointSeen) -> EndpointSeen:
    texts = {name: cut(getattr(seen, name)) for name in ("address", "failure", "tls_version", "cipher", "config")}
    return msgspec.structs.replace(seen, **texts, certificate=shown(seen.certificate))


def _traffic(traffic: Traffic) -> Traffic:
    """Drops latencies with buckets other than ours, because latencies are summed by bucket."""
    ours = tuple(bound for bound, _ in traffic.latency) == LATENCY_BOUNDS
    return traffic if ours or not traffic.latency else msgspec.structs.replace(traffic, latency=())
