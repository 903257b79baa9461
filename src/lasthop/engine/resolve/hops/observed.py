"""The observed health of hops: `OBSERVED` for the current configuration of each hop, without removed endpoints.

OBSERVED ──> hop_state ──> port_states (all protocols of a port together) ──> condition BackendConnected, findings, audit
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from lasthop.base.api.addresses import with_port
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.cluster_metadata import identity
from lasthop.engine.plan.condition import Condition, failed, true, unknown
from lasthop.engine.plan.messages import SEPARATOR
from lasthop.engine.plan.observation import Failure, Health, HopSeen, HopState, failing
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import EndpointsKind, Hop, Protocol
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.gateways.profiles import connect_rules
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.settings import OBSERVED
from lasthop.engine.store.graph import Graph

SHOWN: Final = 3
"""Endpoints, and proxies, that a message names."""
TRAFFIC: Final = {
    Protocol.AUTO: "HTTP requests",
    Protocol.H1_UPGRADE: "upgrades (WebSocket)",
    Protocol.H2: "gRPC calls",
    Protocol.TCP: "connections of TLSRoutes and TCPRoutes",
    Protocol.PASSTHROUGH: "connections that are passed through",
    Protocol.UDP: "datagrams",
}
NOT_TRIED: Final = "no connection was tried yet, or none for a long time"
NOTHING_SEEN: Final = HopState()
_WORST_FIRST: Final = (
    reasons.HANDSHAKE_FAILED,
    reasons.CONNECTION_FAILED,
    reasons.REQUESTS_FAILED,
    reasons.NO_ENDPOINTS,
)
UNTRIED: Final = unknown(reasons.BACKEND_CONNECTED, reasons.NOT_TRIED, NOT_TRIED)


class PortState(msgspec.Struct, frozen=True):
    """The observed state of a backend's port from one Gateway, over all protocols of its routes."""

    backend: Key
    port: int
    health: Health
    since: float
    failures: tuple[Failure, ...]
    endpoints: int
    ejected: tuple[str, ...] = ()
    """Ejected endpoints: they get no traffic for `ejection_seconds` at a time."""
    ejection_seconds: int = 0

    @property
    def name(self) -> str:
        return f"{self.backend}:{self.port}"

    @property
    def problem(self) -> Problem:
        """Returns why connections fail. The text contains no counts and times, so it changes only with the reason."""
        present = {_reason(failure) for failure in self.failures}
        reason = next(reason for reason in _WORST_FIRST if reason in present)
        return Problem(reason, SEPARATOR.join(self._sentences()), about=(self.backend,))

    def _sentences(self) -> Iterator[str]:
        for failure in self.failures:
            shown = _listed(failure.endpoints)
            is_part = self.endpoints > 1 and failure.endpoints
            where = f"{len(failure.endpoints)} of {self.endpoints} endpoints of {self.name}" if is_part else self.name
            proxies = f", from {_listed(failure.proxies)}" if failure.proxies else ""
            place = f"{where}{f' ({shown})' if shown else ''}{proxies}"
            yield failing(place, f"{failure.words}{self._ejection(failure)}")

    def _ejection(self, failure: Failure) -> str:
        ejected = len({*failure.endpoints} & {*self.ejected})
        if not ejected:
            return ""
        count = "" if ejected == len(failure.endpoints) else f"{ejected} of them "
        return f" ({count}ejected: no traffic for {self.ejection_seconds} s at a time)"


def _reason(failure: Failure) -> str:
    if failure.handshake:
        return reasons.HANDSHAKE_FAILED
    return reasons.REQUESTS_FAILED if failure.request else reasons.CONNECTION_FAILED


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def hop_state(g: Graph, gateway: Key, backend: Key, port: int, protocol: Protocol) -> HopState:
    """Returns the observed state of a hop with its current endpoints."""
    hop = Hop(gateway, backend, port, protocol)
    return _states(g, hop, (hop,))[0]


def _states(g: Graph, hop: Hop, observed_as: Iterable[Hop]) -> list[HopState]:
    """Returns the observed states of a hop's connections, for each name under which they are observed."""
    tls = hop_tls(g, *hop)
    states = {} if isinstance(tls, Refused) else OBSERVED.of(g, hop.gateway, hop.backend, hop.port, identity(tls)) or {}
    return [_present(g, name, states.get(name.protocol, NOTHING_SEEN)) for name in observed_as]


def _present(g: Graph, hop: Hop, state: HopState) -> HopState:
    present = present_endpoints(g, hop.backend, hop.port, hop.protocol) if state.failures else None
    return state if present is None else _without_removed(state, present)


def seen_now(g: Graph, hop: Hop, figures: HopSeen) -> HopSeen:
    """Returns the figures with only the endpoints that were observed under the hop's current configuration."""
    tls = hop_tls(g, *hop)
    config = "" if isinstance(tls, Refused) else identity(tls)
    endpoints = tuple(endpoint for endpoint in figures.endpoints if config and endpoint.config == config)
    return msgspec.structs.replace(
        figures,
        endpoints=endpoints,
        last_success=max((endpoint.last_success for endpoint in endpoints), default=0.0),
        last_failure=max((endpoint.last_failure for endpoint in endpoints), default=0.0),
    )


def present_endpoints(g: Graph, backend: Key, port: int, protocol: Protocol) -> frozenset[str] | None:
    """Returns the current endpoints; None if there are none, or if only the proxies know them (DNS)."""
    current = endpoints(g, backend, port, protocol.transport)
    if current.kind is EndpointsKind.DNS or not current.endpoints:
        return None
    return frozenset(with_port(endpoint.address, endpoint.port) for endpoint in current.endpoints)


def _without_removed(state: HopState, present: frozenset[str]) -> HopState:
    """Removes endpoints that no longer exist, and failures without endpoints."""
    failures = []
    for failure in state.failures:
        if remaining := tuple(address for address in failure.endpoints if address in present):
            failures.append(msgspec.structs.replace(failure, endpoints=remaining))
    working = tuple(address for address in state.working if address in present)
    health = Health.UNTRIED
    if failures:
        health = Health.PARTLY_FAILING if working else Health.FAILING
    elif working:
        health = Health.WORKING
    since = state.since if health is state.health else 0.0
    ejected = tuple(address for address in state.ejected if address in present)
    fields = {"failures": tuple(failures), "working": working, "ejected": ejected}
    return msgspec.structs.replace(state, health=health, since=since, **fields)


def port_states(g: Graph, hops: Iterable[Hop]) -> tuple[PortState, ...]:
    """Returns the observed state of each port to which these hops of one Gateway lead."""
    ports: dict[tuple[Key, int], list[tuple[Protocol, HopState]]] = {}
    seconds = 0
    distinct_hops = sorted(set(hops))
    for hop in distinct_hops:
        # Upgrades without a separate cluster use this one.
        upgrades = hop.for_upgrades if hop.for_upgrades not in distinct_hops else None
        observed_as = (hop, upgrades) if upgrades else (hop,)
        for observed_hop, state in zip(observed_as, _states(g, hop, observed_as), strict=True):
            ports.setdefault((hop.backend, hop.port), []).append((observed_hop.protocol, state))
            if state.ejected:
                seconds = connect_rules(g, hop.gateway).ejection_seconds
    return tuple(_joined(backend, port, states, seconds) for (backend, port), states in ports.items())


def _joined(backend: Key, port: int, states: list[tuple[Protocol, HopState]], ejection_seconds: int) -> PortState:
    """Joins all protocols of a port into one state. A protocol is named if it fails at an endpoint where another works."""
    tried = [(protocol, state) for protocol, state in states if state.health is not Health.UNTRIED]
    if not tried:
        return PortState(backend, port, Health.UNTRIED, 0.0, (), 0)
    working = {address for _, state in tried for address in state.working}
    protocol_failures = [(protocol, failure) for protocol, state in tried for failure in state.failures]
    failures: dict[tuple[str, bool, bool, tuple[str, ...]], set[str]] = {}
    for protocol, failure in protocol_failures:
        mixed = not working.isdisjoint(failure.endpoints)
        words = f"{failure.words} (only {TRAFFIC[protocol]})" if mixed and not failure.proxies else failure.words
        kind = (words, failure.handshake, failure.request, failure.proxies)
        failures.setdefault(kind, set()).update(failure.endpoints)
    everywhere = {*working, *(address for addresses in failures.values() for address in addresses)}
    health = Health.WORKING
    if protocol_failures:
        health = Health.PARTLY_FAILING if working else Health.FAILING
    since = min((state.since for _, state in tried if state.health.bad == health.bad and state.since), default=0.0)
    sorted_failures = (
        Failure(words, tuple(sorted(where)), proxies, handshake, request)
        for (words, handshake, request, proxies), where in sorted(failures.items(), key=lambda item: (-len(item[1]), item[0]))
    )
    ejected = tuple(sorted({address for _, state in tried for address in state.ejected}))
    return PortState(backend, port, health, since, tuple(sorted_failures), len(everywhere), ejected, ejection_seconds)


def connected(g: Graph, hops: Iterable[Hop], *, tls: bool = True) -> Condition | None:
    """Returns the condition BackendConnected of an object whose hops at one Gateway are `hops`; None without hops."""
    states = port_states(g, hops)
    if not states:
        return None
    problems = [state.problem for state in states if state.health.bad]
    return failed_to_connect(problems) if problems else _without_failures(states, tls=tls)


def _without_failures(states: Sequence[PortState], *, tls: bool) -> Condition:
    untried = [state for state in states if state.health is Health.UNTRIED]
    if len(untried) == len(states):
        return UNTRIED
    message = f"not tried yet: {', '.join(state.name for state in untried)}" if untried else ""
    return true(reasons.BACKEND_CONNECTED, message, reasons.HANDSHAKES_SUCCEED if tls else reasons.CONNECTIONS_SUCCEED)


def failed_to_connect(problems: Collection[Problem]) -> Condition:
    """Returns the condition BackendConnected for failing ports."""
    present = {problem.reason for problem in problems}
    reason = next(reason for reason in _WORST_FIRST if reason in present)
    about = tuple(dict.fromkeys(key for problem in problems for key in problem.about))
    return failed(reasons.BACKEND_CONNECTED, Problem(reason, SEPARATOR.join(p.message for p in problems), about=about))
