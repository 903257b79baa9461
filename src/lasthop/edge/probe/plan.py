"""Probes the endpoints of a policy, a backend or a route to which Gateways would connect, with the Gateways' own settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lasthop.base.api.addresses import with_port
from lasthop.base.api.core import AnyService, Secret, ServicePort
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy
from lasthop.base.api.profiles import PREFIX
from lasthop.base.api.routes import GRPCRoute, HTTPRoute, StreamRoute
from lasthop.edge.probe.checks import addresses, check_endpoint, unreachable
from lasthop.edge.probe.handshake import Expectation, Identity, NoHandshake, identity
from lasthop.edge.probe.result import EndpointResult, ProbeResult, TargetResult
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.clusters import CLUSTERS, CONNECT_TIMEOUT, h2_but_upgrades, offered
from lasthop.engine.plan.reasons import CONFLICTED
from lasthop.engine.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.engine.plan.tls_options import OPTIONS
from lasthop.engine.plan.upstream import EndpointAddress, Hop, Protocol
from lasthop.engine.resolve.backends import backends
from lasthop.engine.resolve.gateways.gateways import gateway
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.conditions import target_problem
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.targets import WHOLE, claims, port_winner, service_of
from lasthop.engine.resolve.policies.texts import read_policy
from lasthop.engine.store.graph import Graph

MAX_CONCURRENT_PROBES: Final = 8
LIMIT: Final = 10
"""Endpoints of a port that are tried; the others usually have the same certificate."""


class ProbeTarget(NamedTuple):
    """Describes how one Gateway would connect to one port."""

    gateway: str
    """Empty if no route leads to the port yet."""
    backend: Key
    port: int
    expected: Expectation | None
    refused: str = ""
    """The reason why the gateway does not try to connect."""
    endpoints: tuple[EndpointAddress, ...] = ()
    unused: str = ""
    """The reason why no gateway uses this policy for the port."""


# --- targets ---------------------------------------------------------------------------------------------------------


def targets(engine: Engine, key: Key, address: EndpointAddress | None) -> list[ProbeTarget]:
    """Returns the ports for which a gateway would use this policy, or to which it would connect for this Service, XBackend or
    route. With an address, only that address is tried, with the same expectations."""
    all_targets = _of_policy(engine, key) if key.kind == "BackendTLSPolicy" else _of_backend(engine, key)
    if address is None:
        return all_targets
    distinct: dict[str, ProbeTarget] = {}
    for target in all_targets:
        equality_key = repr((target.gateway, target.refused, target.unused, target.expected and target.expected[:2]))
        distinct.setdefault(equality_key, target._replace(endpoints=() if target.refused else (address,)))
    return list(distinct.values())


def _of_policy(engine: Engine, key: Key) -> list[ProbeTarget]:
    used = list(_of_hops(engine, lambda hop, tls: getattr(tls, "source", None) == key))
    return [*(used or _unreached(engine, key)), *_without_effect(engine, key)]


def _of_backend(engine: Engine, key: Key) -> list[ProbeTarget]:
    if targets := list(_of_hops(engine, _leads_to(engine, key))):
        return targets
    return [target for policy in _policies(engine, key) for target in _unreached(engine, policy) if target.backend == key]


def _leads_to(engine: Engine, key: Key) -> Callable[[Hop, HopTLS], bool]:
    """Returns a predicate for the hops to a backend, or from a route's Gateways to its backends."""
    route = engine.store.get(key)
    if not isinstance(route, HTTPRoute | GRPCRoute | StreamRoute):
        return lambda hop, tls: hop.backend == key
    g = engine.graph
    backend_targets = (backends.target(g, key, ref) for rule in route.spec.rules for ref in rule.backend_refs)
    ports = {(target.backend, target.port) for target in backend_targets if isinstance(target, backends.BackendTarget)}
    parents = route.spec.parent_refs
    gateways = {Key("Gateway", ref.namespace or key.namespace, ref.name) for ref in parents}
    # Hops of any Gateway match a ListenerSet, because its Gateway matters little here.
    anywhere = any(ref.kind != "Gateway" for ref in parents)
    calls = isinstance(route, GRPCRoute)

    def leads_there(hop: Hop, tls: HopTLS) -> bool:
        ours = (hop.protocol is Protocol.H2) is calls  # an HTTPRoute to the same port requires less
        return ours and (hop.backend, hop.port) in ports and (anywhere or hop.gateway in gateways)

    return leads_there


def _policies(engine: Engine, key: Key) -> list[Key]:
    return list(dict.fromkeys(claim.policy for claim in claims(engine.graph, key))) if key.kind in SERVICE_GROUPS else []


def _of_hops(engine: Engine, selects: Callable[[Hop, HopTLS], bool]) -> Iterator[ProbeTarget]:
    g = engine.graph
    ports: dict[tuple[Key, Key, int], Hop] = {}
    calls: set[tuple[Key, Key, int]] = set()
    for hop in sorted(Hop(*key) for key in engine.stages.members(CLUSTERS)):
        if hop.protocol.policed and hop.protocol is not Protocol.H1_UPGRADE and selects(hop, hop_tls(g, *hop)):
            ports.setdefault((hop.gateway, hop.backend, hop.port), hop)
            calls.update([hop[:3]] if hop.protocol is Protocol.H2 else ())
    for hop in ports.values():
        tls = hop_tls(g, *hop)
        refused = _not_accepted(g, hop.gateway) or (tls.problem.text if isinstance(tls, Refused) else "")
        yield _target(engine, hop, tls, hop.gateway.path, refused, grpc=hop[:3] in calls)


def _not_accepted(g: Graph, key: Key) -> str:
    resolved = gateway(g, key)
    if resolved is None or resolved.accepted.status:
        return ""
    return f"Gateway {key.path} is not accepted, so it serves nothing: {resolved.accepted.message}"


def _unreached(engine: Engine, policy: Key) -> Iterator[ProbeTarget]:
    """Yields the policy's own requirements, for ports to which no Gateway connects yet."""
    g, obj = engine.graph, read_policy(engine.graph, policy)
    if obj is None:
        return
    judged = judgement(g, policy)
    tls = judged.tls if judged else None
    refused = judged.problem.text if judged and judged.problem else ""
    for key, port in _ports(engine, obj):
        winner = port_winner(g, key, port.name)
        if winner and winner.policy == policy:
            target = _target(engine, Hop(Key("Gateway", "", ""), key, port.port, Protocol.AUTO), tls, "", refused)
            yield target._replace(unused=_passed_through(engine, key, port.port))


def _ports(engine: Engine, policy: BackendTLSPolicy) -> Iterator[tuple[Key, ServicePort]]:
    for ref in policy.spec.target_refs:
        key = service_of(Key("BackendTLSPolicy", policy.metadata.namespace, policy.metadata.name), ref)
        service = engine.store.get(key) if key else None
        if key and isinstance(service, AnyService):
            for port in service.spec.ports:
                if port.protocol == "TCP" and ref.section_name in (WHOLE, port.name):
                    yield key, port


def _passed_through(engine: Engine, service: Key, port: int) -> str:
    """Returns why a policy is unused although there is a route."""
    hops = (Hop(*key) for key in engine.stages.members(CLUSTERS))
    if any((hop.backend, hop.port, hop.protocol) == (service, port, Protocol.PASSTHROUGH) for hop in hops):
        return "only TLSRoutes of Passthrough listeners lead there: TLS is end to end from the client, so no policy applies"
    return ""


def _without_effect(engine: Engine, policy: Key) -> Iterator[ProbeTarget]:
    """Yields the target Services for which another policy wins."""
    g, obj = engine.graph, read_policy(engine.graph, policy)
    if obj is None:
        return
    for ref in obj.spec.target_refs:
        key = Key(ref.kind, policy.namespace, ref.name)
        if problem := target_problem(g, policy, ref):
            unused = problem.text if problem.reason == CONFLICTED else ""
            yield ProbeTarget("", key, 0, None, "" if unused else problem.text, unused=unused)
            continue
        named = [port.name for service, port in _ports(engine, obj) if service == key]
        winners = _winning_policies(g, policy, key, named)
        if named and len(winners) == len(named):
            unused = f"each of its ports has a BackendTLSPolicy of its own: {', '.join(winners)}"
            yield ProbeTarget("", key, 0, None, unused=unused)


def _winning_policies(g: Graph, policy: Key, service: Key, ports: Iterable[str]) -> list[str]:
    """Returns the ports for which another policy wins, with that policy."""
    winners = {port: port_winner(g, service, port) for port in ports}
    return [f"{port} ({claim.policy.path})" for port, claim in winners.items() if claim and claim.policy != policy]


def _target(
    engine: Engine, hop: Hop, tls: HopTLS | None, gateway_path: str, refused: str, *, grpc: bool = False
) -> ProbeTarget:
    g = engine.graph
    ready = backends.endpoints(g, hop.backend, hop.port, "TCP")
    if isinstance(tls, Plaintext) and not refused:
        return ProbeTarget(
            gateway_path, hop.backend, hop.port, None, unused="no policy requires TLS, so the connection is plaintext"
        )
    if not isinstance(tls, BackendTLS) or refused:
        return ProbeTarget(gateway_path, hop.backend, hop.port, None, refused)
    alpn, h2c = tls.options.alpn, backends.speaks_h2c(g, hop.backend, hop.port)
    if hop.protocol.http:
        protocols = offered(hop, h2c, tls)
        alpn = tuple(protocol for protocol in ("h2", "http/1.1") if protocol in protocols)
    client_identity = _client_identity(engine, tls)
    expected = Expectation(
        tls, alpn, client_identity, hop.protocol.http, h2_but_upgrades(hop, h2c, tls), grpc and hop.protocol.http
    )
    return ProbeTarget(gateway_path, hop.backend, hop.port, expected, "", ready.endpoints)


def _client_identity(engine: Engine, tls: BackendTLS) -> Identity | None:
    secret = engine.store.get(tls.client_certificate) if tls.client_certificate else None
    if not isinstance(secret, Secret):
        return None
    return identity(secret.data.get("tls.crt") or b"", secret.data.get("tls.key") or b"")


# --- probing ---------------------------------------------------------------------------------------------------------


def probe(key: Key, todo: list[ProbeTarget], *, notes: tuple[str, ...] = ()) -> ProbeResult:
    """Probes the targets. Blocks, so run it in a thread beside an event loop."""
    now = time.time()
    with ThreadPoolExecutor(MAX_CONCURRENT_PROBES) as pool:

        def probe_target(target: ProbeTarget) -> TargetResult:
            expected, refused = target.expected, target.refused
            if expected is None:
                return TargetResult(target.gateway, str(target.backend), target.port, "", refused, target.unused, ())
            results_of_endpoints: list[EndpointResult] = []
            to_try: list[tuple[str, int]] = []
            for endpoint in target.endpoints:
                try:
                    to_try += addresses(endpoint.address, endpoint.port)
                except NoHandshake as error:
                    results_of_endpoints.append(
                        EndpointResult(with_port(endpoint.address, endpoint.port), (unreachable(error),))
                    )
            results_of_endpoints += pool.map(
                lambda address: check_endpoint(address, expected, now, CONNECT_TIMEOUT), to_try[:LIMIT]
            )
            if not results_of_endpoints:
                refused = refused or "no endpoint is ready"
            untried = max(0, len(to_try) - LIMIT)
            source = str(expected.tls.source)
            return TargetResult(
                target.gateway,
                str(target.backend),
                target.port,
                source,
                refused,
                target.unused,
                tuple(results_of_endpoints),
                untried,
            )

        results = tuple(map(probe_target, todo))
    for option in OPTIONS:
        if not option.probed and any(
            target.expected and getattr(target.expected.tls.options, option.field) for target in todo
        ):
            substitute = f"this machine's own {option.label} were offered"
            notes = (*notes, f"Option {PREFIX}{option.name} is not tried: {substitute}.")
    return ProbeResult(str(key), results, notes)
