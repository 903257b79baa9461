"""What there is to try for a policy: each Gateway that uses it, each port, each endpoint, with the wish the gateway has."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec

from lasthop.api.core import Secret, Service
from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy
from lasthop.cli.handshake import NoHandshake
from lasthop.cli.probe_checks import Tried, resolved, tried, unreachable
from lasthop.cli.probe_handshake import identity
from lasthop.cli.probe_values import Wish
from lasthop.engine import Engine
from lasthop.outputs.envoy.clusters import CLUSTERS, CONNECT_TIMEOUT, offered
from lasthop.plan.tls import BackendTLS, HopTLS, Refused
from lasthop.plan.upstream import Endpoint, Hop, Protocol, Upstream
from lasthop.resolve.backends import Target, endpoints, problem, upstream
from lasthop.resolve.policies.backend_tls import spoken
from lasthop.resolve.policies.standing import target_trouble
from lasthop.resolve.policies.targets import WHOLE, is_service, port_winner
from lasthop.resolve.policies.validation import verdict, wanted_tls

AT_ONCE: Final = 8
LIMIT: Final = 10
"""Endpoints of a port that are tried; the others have the same certificate as a rule."""


class Aim(NamedTuple):
    """One port, as one Gateway would speak to it."""

    gateway: str
    """Empty: no route leads there yet."""
    service: str
    port: int
    wish: Wish | None
    refused: str = ""
    """Why the gateway does not even try."""
    endpoints: tuple[Endpoint, ...] = ()


class Aimed(msgspec.Struct, frozen=True):
    gateway: str
    service: str
    port: int
    refused: str
    endpoints: tuple[Tried, ...]
    more: int = 0
    """Endpoints that were not tried."""

    @property
    def passes(self) -> bool:
        return not self.refused and bool(self.endpoints) and all(each.passes for each in self.endpoints)


class Probed(msgspec.Struct, frozen=True):
    policy: str
    targets: tuple[Aimed, ...]
    notes: tuple[str, ...] = ()

    @property
    def passes(self) -> bool:
        return bool(self.targets) and all(each.passes for each in self.targets)


# --- what there is to try --------------------------------------------------------------------------------------------


def aims(engine: Engine, policy: Key, address: Endpoint | None) -> list[Aim]:
    """Where the gateway would use this policy; with an address, the same wishes for that alone."""
    found = list(_of_hops(engine, policy)) or list(_unreached(engine, policy))
    found += _without_effect(engine, policy)
    if address is None:
        return found
    alone: dict[str, Aim] = {}
    for aim in found:
        same = repr((aim.gateway, aim.refused, aim.wish and aim.wish[:2]))
        alone.setdefault(same, aim._replace(endpoints=() if aim.refused else (address,)))
    return list(alone.values())


def _of_hops(engine: Engine, policy: Key) -> Iterator[Aim]:
    g = engine.graph
    ports: dict[tuple[Key, Key, int], Hop] = {}
    for hop in sorted(Hop(*key) for key in g.members(CLUSTERS.name)):
        tls = g.value(spoken, hop) if hop.protocol.policed else None
        if isinstance(tls, BackendTLS | Refused) and tls.policy == policy and hop.protocol is not Protocol.H1_UPGRADE:
            ports.setdefault((hop.gateway, hop.service, hop.port), hop)
    for hop in ports.values():
        why = g.value(problem, hop.gateway, Target(hop.service, hop.port), hop.protocol)
        yield _aim(engine, hop, g.value(spoken, hop), hop.gateway.path, why.message if why else "")


def _unreached(engine: Engine, policy: Key) -> Iterator[Aim]:
    """As the policy by itself asks, for which no Gateway stands in yet."""
    g, obj = engine.graph, engine.store.get(policy)
    if not isinstance(obj, BackendTLSPolicy):
        return
    wanted, judged = g.value(wanted_tls, policy), g.value(verdict, policy)
    refused = "" if wanted else judged.accepted.message if judged else "it is gone"
    tls: HopTLS = wanted or Refused("", refused, policy)
    for target in obj.spec.target_refs:
        key = Key("Service", policy.namespace, target.name)
        service = engine.store.get(key)
        if not is_service(target) or not isinstance(service, Service):
            continue
        for port in service.spec.ports:
            winner = g.value(port_winner, key, port.name)
            if port.protocol == "TCP" and target.section_name in (WHOLE, port.name) and winner and winner.policy == policy:
                yield _aim(engine, Hop(Key("Gateway", "", ""), key, port.port, Protocol.AUTO), tls, "", refused)


def _without_effect(engine: Engine, policy: Key) -> Iterator[Aim]:
    """Targets that this policy names and does not rule."""
    obj = engine.store.get(policy)
    for target in obj.spec.target_refs if isinstance(obj, BackendTLSPolicy) else ():
        if trouble := engine.graph.value(target_trouble, policy, target):
            yield Aim("", f"{policy.namespace}/{target.name}", 0, None, trouble.message)


def _aim(engine: Engine, hop: Hop, tls: HopTLS, gateway: str, refused: str) -> Aim:
    g = engine.graph
    found = g.value(endpoints, hop.service, hop.port, "TCP")
    if not isinstance(tls, BackendTLS) or refused:
        return Aim(gateway, hop.service.path, hop.port, None, refused or getattr(tls, "message", "it is not used"))
    alpn = tls.options.alpn
    if hop.protocol.http:
        there = (g.value(upstream, *hop) if gateway else None) or Upstream(False, found.kind)
        protocols = offered(hop, there, tls)
        alpn = tuple(each for each in ("h2", "http/1.1") if each in protocols)
    secret = engine.store.get(tls.client_certificate) if tls.client_certificate else None
    own = None
    if isinstance(secret, Secret):
        own = identity(secret.data.get("tls.crt") or b"", secret.data.get("tls.key") or b"")
    return Aim(gateway, hop.service.path, hop.port, Wish(tls, alpn, own, hop.protocol.http), "", found.endpoints)


# --- trying it -------------------------------------------------------------------------------------------------------


def probe(
    policy: Key, todo: list[Aim], *, notes: tuple[str, ...] = (), limit: int = LIMIT, timeout: float = CONNECT_TIMEOUT
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
            refused = aim.refused or ("" if found else "no endpoint is ready, so there is nobody to connect to")
            more = max(0, len(places) - limit)
            done.append(Aimed(aim.gateway, aim.service, aim.port, refused, tuple(found), more))
    curves = any(aim.wish and aim.wish.tls.options.curves for aim in todo)
    if curves:
        notes = (*notes, "Option lasthop.dev/curves is not tried: this machine's own curves were offered.")
    return Probed(policy.path, tuple(done), notes)
