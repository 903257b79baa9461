"""Reads from a running engine what the picture is drawn from, one member at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lasthop.api.meta import Key
from lasthop.api.route_kinds import ROUTE_KINDS
from lasthop.engine import Engine
from lasthop.observe.observations import Observations
from lasthop.outputs.audit.hops import HopReport, Manner
from lasthop.plan import upstream
from lasthop.plan.listener import Listener
from lasthop.plan.observation import EndpointSeen, Health, HopSeen, HopState, Traffic
from lasthop.plan.problem import Problem
from lasthop.resolve.attachment import parents
from lasthop.resolve.certificates import KeyPair, key_pair
from lasthop.resolve.gateways import gateway
from lasthop.store.graph import Graph
from lasthop.store.node import Crash
from lasthop.web.drawing import ListenerSeen, RouteSeen
from lasthop.web.picture import Observed

_WORST: Final = (Health.FAILING, Health.PARTLY_FAILING, Health.WORKING, Health.UNTRIED)


def observed(observations: Observations, report: HopReport) -> Observed:
    """Returns what has been seen of a hop; its protocols are one line."""
    found = [(hop, seen) for hop in hops_of(report) if (seen := observations.seen(hop))]
    if not found:
        return Observed()
    states = [observations.state(hop) for hop, _ in found]
    rate = observations.rate(*(hop for hop, _ in found))
    return Observed(_joined_state(states), _joined_seen([seen for _, seen in found]), rate)


def hops_of(report: HopReport) -> Iterator[upstream.Hop]:
    gateway, backend = _key("Gateway", report.gateway), _key(report.kind, report.backend)
    own = {Manner.PASSTHROUGH: upstream.Protocol.PASSTHROUGH, Manner.UDP: upstream.Protocol.UDP}.get(report.manner)
    for protocol in upstream.Protocol:
        if protocol is own or (own is None and protocol.policed):
            yield upstream.Hop(gateway, backend, report.port, protocol)


def _key(kind: str, path: str) -> Key:
    namespace, _, name = path.rpartition("/")
    return Key(kind, namespace, name)


def _joined_state(states: list[HopState]) -> HopState:
    tried = [each for each in states if each.health is not Health.UNTRIED]
    if len(tried) < 2:
        return tried[0] if tried else HopState()
    healths = {each.health for each in tried}
    certificates = {certificate for each in tried for certificate in each.certificates}
    return HopState(
        next(health for health in _WORST if health in healths),
        max(each.since for each in tried),
        tuple(sorted({failure for each in tried for failure in each.failures})),
        tuple(sorted({address for each in tried for address in each.working})),
        tuple(sorted(certificates, key=lambda certificate: certificate.not_after)),
        tuple(sorted({version for each in tried for version in each.tls_versions})),
    )


def _joined_seen(found: list[HopSeen]) -> HopSeen:
    if len(found) == 1:
        return found[0]
    endpoints: dict[str, EndpointSeen] = {}
    for endpoint in sorted((endpoint for each in found for endpoint in each.endpoints), key=_last_tried):
        endpoints[endpoint.address] = endpoint
    return HopSeen(
        sum(each.handshakes for each in found),
        sum(each.handshake_failures for each in found),
        sum(each.connect_failures for each in found),
        last_success=max(each.last_success for each in found),
        last_failure=max(each.last_failure for each in found),
        endpoints=tuple(sorted(endpoints.values(), key=lambda each: (not each.in_a_row, each.address))),
        traffic=sum((each.traffic for each in found), Traffic()),
    )


def _last_tried(endpoint: EndpointSeen) -> float:
    return max(endpoint.last_failure, endpoint.last_success)


def each_listener(engine: Engine) -> Iterator[ListenerSeen]:
    for key in engine.store.keys("Gateway"):
        found = gateway.attempt(engine.graph, key)
        if found is None or isinstance(found, Crash):
            continue
        for listener in found.listeners:
            yield _listener(engine.graph, key, listener)


def _listener(g: Graph, key: Key, listener: Listener) -> ListenerSeen:
    pairs = (key_pair.attempt(g, secret) for secret in listener.certificates)
    first = min((pair for pair in pairs if isinstance(pair, KeyPair)), key=lambda pair: pair.not_after, default=None)
    return ListenerSeen(
        listener_id(listener.owner, listener.name),
        key.path,
        listener.name,
        listener.port,
        listener.protocol,
        listener.hostname,
        "" if listener.owner == key else listener.owner.path,
        "" if listener.served else _why(condition.problem for condition in listener.conditions),
        first.subject if first else "",
        first.not_after if first else 0.0,
    )


def _why(problems: Iterable[Problem | None]) -> str:
    return next((problem.text for problem in problems if problem), "not served")


def listener_id(owner: Key, name: str) -> str:
    return f"{owner} {name}"


def each_route(engine: Engine, observations: Observations) -> Iterator[RouteSeen]:
    """Yields the routes that name a Gateway of ours."""
    for kind in ROUTE_KINDS:
        for key in engine.store.keys(kind):
            found = parents.attempt(engine.graph, key)
            if isinstance(found, Crash) or not found:
                continue
            yield RouteSeen(
                str(key),
                tuple(listener_id(parent.owner, name) for parent in found for name in parent.listeners),
                tuple(dict.fromkeys(parent.gateway.path for parent in found)),
                tuple(dict.fromkeys(host for parent in found for _, host in parent.hosts if host)),
                observations.rate(key).requests,
            )
