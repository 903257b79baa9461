"""What there is to try for a policy, a backend or a route: each Gateway, each port, each endpoint, with the wish the gateway
has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from lasthop.api.core import Secret, Service, ServicePort
from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy
from lasthop.api.profiles import PREFIX
from lasthop.api.routes import GRPCRoute, HTTPRoute, StreamRoute
from lasthop.engine import Engine
from lasthop.outputs.envoy.clusters import CLUSTERS, CONNECT_TIMEOUT, offered
from lasthop.plan.reasons import CONFLICTED
from lasthop.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.plan.tls_options import OPTIONS
from lasthop.plan.upstream import Endpoint, Hop, Protocol
from lasthop.probe.certificate_message import NoHandshake
from lasthop.probe.checks import Tried, resolved, tried, unreachable
from lasthop.probe.handshake import identity
from lasthop.probe.values import Wish
from lasthop.resolve.backends import Target, endpoints, speaks_h2c, target
from lasthop.resolve.gateways import gateway
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.policies.conditions import target_problem
from lasthop.resolve.policies.judgement import judgement
from lasthop.resolve.policies.targets import WHOLE, claims, is_service, port_winner
from lasthop.store.graph import Graph

AT_ONCE: Final = 8
LIMIT: Final = 10
"""Endpoints of a port that are tried; the others have the same certificate as a rule."""


class Aim(NamedTuple):
    """One port, as one Gateway would connect to it."""

    gateway: str
    """Empty: no route leads there yet."""
    service: Key
    """Or an XBackend."""
    port: int
    wish: Wish | None
    refused: str = ""
    """Why the gateway does not even try."""
    endpoints: tuple[Endpoint, ...] = ()
    unused: str = ""
    """Why no gateway connects there by this policy, be it right or wrong."""


class Aimed(msgspec.Struct, frozen=True):
    gateway: str
    service: str
    """`Service shop/api`, `XBackend shop/far`."""
    port: int
    policy: str
    """Who asks for what is tried; empty if nobody does."""
    refused: str
    unused: str
    endpoints: tuple[Tried, ...]
    more: int = 0
    """Endpoints that were not tried."""

    @property
    def passes(self) -> bool:
        return not self.refused and bool(self.endpoints) and all(each.passes for each in self.endpoints)


class Probed(msgspec.Struct, frozen=True):
    object: str
    """`BackendTLSPolicy shop/api`."""
    targets: tuple[Aimed, ...]
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[Aimed, ...]:
        return tuple(each for each in self.targets if not each.unused)

    @property
    def fails(self) -> bool:
        return any(not each.passes for each in self.used)

    @property
    def passes(self) -> bool:
        return bool(self.used) and not self.fails


# --- what there is to try --------------------------------------------------------------------------------------------


def aims(engine: Engine, key: Key, address: Endpoint | None) -> list[Aim]:
    """Returns where a gateway would use this policy, or how it would connect to this Service, XBackend or route's backends;
    with an address, the same wishes for that alone."""
    if key.kind == "BackendTLSPolicy":
        found = list(_of_hops(engine, lambda hop, tls: getattr(tls, "source", None) == key)) or list(_unreached(engine, key))
        found += _without_effect(engine, key)
    else:
        found = list(_of_hops(engine, _leads_to(engine, key)))
        found = found or [aim for policy in _policies(engine, key) for aim in _unreached(engine, policy) if aim.service == key]
    if address is None:
        return found
    alone: dict[str, Aim] = {}
    for aim in found:
        same = repr((aim.gateway, aim.refused, aim.unused, aim.wish and aim.wish[:2]))
        alone.setdefault(same, aim._replace(endpoints=() if aim.refused else (address,)))
    return list(alone.values())


def _leads_to(engine: Engine, key: Key) -> Callable[[Hop, HopTLS], bool]:
    """Whether a hop leads to a backend, or to one of a route's from one of its Gateways."""
    route = engine.store.get(key)
    if not isinstance(route, HTTPRoute | GRPCRoute | StreamRoute):
        return lambda hop, tls: hop.backend == key
    g = engine.graph
    found = (target(g, key, ref) for rule in route.spec.rules for ref in rule.backend_refs)
    ports = {(each.backend, each.port) for each in found if isinstance(each, Target)}
    parents = route.spec.parent_refs
    gateways = {Key("Gateway", ref.namespace or key.namespace, ref.name) for ref in parents}
    # A ListenerSet belongs to some Gateway; which one matters little here.
    anywhere = any(ref.kind != "Gateway" for ref in parents)
    return lambda hop, tls: (hop.backend, hop.port) in ports and (anywhere or hop.gateway in gateways)


def _policies(engine: Engine, key: Key) -> list[Key]:
    return list(dict.fromkeys(claim.policy for claim in claims(engine.graph, key))) if key.kind == "Service" else []


def _of_hops(engine: Engine, wanted: Callable[[Hop, HopTLS], bool]) -> Iterator[Aim]:
    g = engine.graph
    ports: dict[tuple[Key, Key, int], Hop] = {}
    for hop in sorted(Hop(*key) for key in engine.stages.members(CLUSTERS)):
        if hop.protocol.policed and hop.protocol is not Protocol.H1_UPGRADE and wanted(hop, hop_tls(g, *hop)):
            ports.setdefault((hop.gateway, hop.backend, hop.port), hop)
    for hop in ports.values():
        tls = hop_tls(g, *hop)
        refused = _not_accepted(g, hop.gateway) or (tls.problem.text if isinstance(tls, Refused) else "")
        yield _aim(engine, hop, tls, hop.gateway.path, refused)


def _not_accepted(g: Graph, key: Key) -> str:
    found = gateway(g, key)
    if found is None or found.accepted.status:
        return ""
    return f"Gateway {key.path} is not accepted, so it serves nothing: {found.accepted.message}"


def _unreached(engine: Engine, policy: Key) -> Iterator[Aim]:
    """As the policy by itself asks, for which no Gateway stands in yet."""
    g, obj = engine.graph, engine.store.get(policy)
    if not isinstance(obj, BackendTLSPolicy):
        return
    judged = judgement(g, policy)
    wanted = judged.tls if judged else None
    refused = judged.problem.text if judged and judged.problem else ""
    for key, port in _ports(engine, obj):
        winner = port_winner(g, key, port.name)
        if winner and winner.policy == policy:
            aim = _aim(engine, Hop(Key("Gateway", "", ""), key, port.port, Protocol.AUTO), wanted, "", refused)
            yield aim._replace(unused=_passed_through(engine, key, port.port))


def _ports(engine: Engine, policy: BackendTLSPolicy) -> Iterator[tuple[Key, ServicePort]]:
    """The ports that a policy names."""
    for ref in policy.spec.target_refs:
        key = Key("Service", policy.metadata.namespace, ref.name)
        service = engine.store.get(key)
        if is_service(ref) and isinstance(service, Service):
            for port in service.spec.ports:
                if port.protocol == "TCP" and ref.section_name in (WHOLE, port.name):
                    yield key, port


def _passed_through(engine: Engine, service: Key, port: int) -> str:
    """Why a policy is not used although there is a route."""
    hops = (Hop(*key) for key in engine.stages.members(CLUSTERS))
    if any((hop.backend, hop.port, hop.protocol) == (service, port, Protocol.PASSTHROUGH) for hop in hops):
        return "only TLSRoutes of Passthrough listeners lead there: the TLS is the client's own, and no policy concerns it"
    return ""


def _without_effect(engine: Engine, policy: Key) -> Iterator[Aim]:
    """Targets that this policy names and does not rule."""
    g, obj = engine.graph, engine.store.get(policy)
    if not isinstance(obj, BackendTLSPolicy):
        return
    for ref in obj.spec.target_refs:
        key = Key("Service", policy.namespace, ref.name)
        if problem := target_problem(g, policy, ref):
            unused = problem.text if problem.reason == CONFLICTED else ""
            yield Aim("", key, 0, None, "" if unused else problem.text, unused=unused)
            continue
        others = {
            port.name: winner.policy.path
            for service, port in _ports(engine, obj)
            if service == key and (winner := port_winner(g, key, port.name)) and winner.policy != policy
        }
        named = [port for service, port in _ports(engine, obj) if service == key]
        if named and len(others) == len(named):
            listed = ", ".join(f"{port} ({path})" for port, path in others.items())
            yield Aim("", key, 0, None, unused=f"each of its ports has a BackendTLSPolicy of its own: {listed}")


def _aim(engine: Engine, hop: Hop, tls: HopTLS | None, by: str, refused: str) -> Aim:
    g = engine.graph
    found = endpoints(g, hop.backend, hop.port, "TCP")
    if isinstance(tls, Plaintext) and not refused:
        return Aim(by, hop.backend, hop.port, None, unused="nothing asks for TLS there, so it is plaintext")
    if not isinstance(tls, BackendTLS) or refused:
        return Aim(by, hop.backend, hop.port, None, refused)
    alpn = tls.options.alpn
    if hop.protocol.http:
        protocols = offered(hop, speaks_h2c(g, hop.backend, hop.port), tls)
        alpn = tuple(each for each in ("h2", "http/1.1") if each in protocols)
    secret = engine.store.get(tls.client_certificate) if tls.client_certificate else None
    own = None
    if isinstance(secret, Secret):
        own = identity(secret.data.get("tls.crt") or b"", secret.data.get("tls.key") or b"")
    return Aim(by, hop.backend, hop.port, Wish(tls, alpn, own, hop.protocol.http), "", found.endpoints)


# --- trying it -------------------------------------------------------------------------------------------------------


def probe(
    key: Key, todo: list[Aim], *, notes: tuple[str, ...] = (), limit: int = LIMIT, timeout: float = CONNECT_TIMEOUT
) -> Probed:
    """Blocks: run it in a thread where something else goes on."""
    now = time.time()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = []
        for aim in todo:
            found: list[Tried] = []
            places: list[tuple[str, int]] = []
            for endpoint in aim.endpoints if aim.wish else ():
                try:
                    places += resolved(endpoint.address, endpoint.port)
                except NoHandshake as error:
                    found.append(Tried(f"{endpoint.address}:{endpoint.port}", (unreachable(error),)))
            wish = aim.wish
            if wish is not None:
                found += pool.map(lambda place, wish=wish: tried(place, wish, now, timeout), places[:limit])
            refused = aim.refused
            if aim.wish and not found:
                refused = refused or "no endpoint is ready, so there is nobody to connect to"
            more = max(0, len(places) - limit)
            policy = str(aim.wish.tls.source) if aim.wish else ""
            aimed = Aimed(aim.gateway, str(aim.service), aim.port, policy, refused, aim.unused, tuple(found), more)
            done.append(aimed)
    for option in OPTIONS:
        if not option.probed and any(aim.wish and getattr(aim.wish.tls.options, option.field) for aim in todo):
            tried_instead = f"this machine's own {option.label} were offered"
            notes = (*notes, f"Option {PREFIX}{option.name} is not tried: {tried_instead}.")
    return Probed(str(key), tuple(done), notes)
