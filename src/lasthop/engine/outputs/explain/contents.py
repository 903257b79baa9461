"""Explains Services, XBackends, and objects that others read (ConfigMaps, Secrets, ...): which objects use them. The recorded
reads of the graph provide the users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lasthop.base.api.backends import EXTERNAL_HOSTNAME, XBackend
from lasthop.base.api.core import AnyService, ServicePort
from lasthop.base.api.gateway import ReferenceGrant
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.engine.outputs.explain.fact import Fact, FactState, bad, good, plain, warning, worst
from lasthop.engine.outputs.explain.hops import ca_bundle, context_facts, observed_fact, rivals, tls_fact, trust
from lasthop.engine.outputs.explain.policies import routes_to
from lasthop.engine.outputs.explain.reads import above
from lasthop.engine.outputs.status.statuses import STATUS_OF
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends import xbackends
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.backends.grants import ANY, GRANTS, references
from lasthop.engine.resolve.backends.reach import HOPS, REACH
from lasthop.engine.resolve.backends.xbackend_conditions import hops
from lasthop.engine.resolve.backends.xbackends import spec_problem
from lasthop.engine.resolve.gateways.frontend import frontend
from lasthop.engine.resolve.gateways.gateways import client_certificate
from lasthop.engine.resolve.gateways.listeners import own_listeners
from lasthop.engine.resolve.policies.judgement import judgement
from lasthop.engine.resolve.policies.targets import claims, port_winner
from lasthop.engine.resolve.settings import settings
from lasthop.engine.resolve.trust.certificates import KeyPair, key_pair
from lasthop.engine.resolve.trust.trust import bundle, day, pair_dates
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import OBJECTS, read

Words = dict[Callable[..., Any], str]
CONTENT_KINDS = ("ConfigMap", "Secret", "ClusterTrustBundle", "EndpointSlice", "PinSet", "VerificationWaiver")
GIVES = {"PinSet": "lists the certificates or keys that the backends of {} may present", "VerificationWaiver": "weakens {}"}
"""Uses of PinSets and VerificationWaivers."""
USES: Words = {frontend: "gives {} the CAs of its clients", endpoints: "gives {} endpoints"}
"""Uses of an object, by the query that reads it."""
CLIENT_CERTIFICATES: Words = {
    xbackends.client_certificate: "contains the client certificate for {}",
    client_certificate: "contains the client certificate of {} for backends",
}
SECRET_USES: Words = {own_listeners: "contains a certificate for listeners of {}", **CLIENT_CERTIFICATES}
"""Uses of Secrets. Another use by the same object takes precedence over a client certificate."""


def explain_service(g: Graph, key: Key) -> Fact:
    obj = read(g, key, AnyService)
    hops, ports = _distinct(REACH.of(g, key)), obj.spec.ports if obj else ()
    facts = [_port(g, key, port, hops) for port in ports]
    existing = {(port.port, port.protocol) for port in ports}
    facts += [
        bad(f"port {hop.port} does not exist, but {_routes(g, hop)} of {hop.gateway} use it")
        for hop in hops
        if (hop.port, hop.protocol.transport) not in existing
    ]
    return Fact(str(key), worst(facts), tuple(facts), key)


def _port(g: Graph, key: Key, port: ServicePort, hops: Iterable[Hop]) -> Fact:
    reached = [_reached(g, hop) for hop in hops if (hop.port, hop.protocol.transport) == (port.port, port.protocol)]
    named = f" ({port.name})" if port.name else ""
    because = tuple(reached or _unreached(g, key, port))
    return Fact(f"port {port.port}{named}", worst(because), because)


def _distinct(hops: Iterable[Hop]) -> list[Hop]:
    """Returns one hop per Gateway and port, because a BackendTLSPolicy applies to all protocols or to none."""
    shown = {(hop.gateway, hop.port, "" if hop.protocol.policed else hop.protocol): hop for hop in sorted(hops, reverse=True)}
    return sorted(shown.values())


def _reached(g: Graph, hop: Hop) -> Fact:
    tls = tls_fact(g, hop)
    text = f"from {hop.gateway} by {_routes(g, hop)}: {tls.text}"
    seen = observed_fact(g, hop)
    return Fact(text, worst((tls, *seen)), (*tls.because, *seen), tls.object, missing=tls.missing)


def _routes(g: Graph, hop: Hop) -> str:
    routes = routes_to(g, hop.gateway, hop.backend, hop.port, policed=hop.protocol.policed)
    return ", ".join(str(route) for route in routes)


def _unreached(g: Graph, key: Key, port: ServicePort) -> Iterator[Fact]:
    yield plain("no accepted route of a Gateway uses it")
    if port.protocol != "TCP":
        return
    winner = port_winner(g, key, port.name)
    if winner:
        yield plain(f"a request would use TLS, as {winner.policy} requires", object=winner.policy)
    yield from rivals(g, key, port.port)
    if not claims(g, key):
        yield plain("no BackendTLSPolicy targets it: a request would use plaintext")


def explain_content(g: Graph, key: Key) -> Fact:
    """Explains a ConfigMap, Secret, ClusterTrustBundle, or another object that others only read."""
    words: Words = {
        judgement: GIVES.get(key.kind, "gives {} its CAs"),
        **USES,
        **(SECRET_USES if key.kind == "Secret" else {}),
    }
    uses: dict[Key, str] = {}
    bundles: dict[LocalObjectReference, str] = {}
    for query, *args in above(g, (OBJECTS, key), judgement, endpoints, own_listeners):
        if query is bundle:
            bundles[args[1]] = args[0]
        elif query in words and (args[0] not in uses or query not in CLIENT_CERTIFICATES):
            uses[args[0]] = words[query].format(args[0])
    facts = [ca_bundle(g, namespace, ref, "contains a valid CA bundle") for ref, namespace in sorted(bundles.items(), key=str)]
    facts += list(_pair(g, key))
    facts += [plain(use, object=user) for user, use in sorted(uses.items())]
    if not uses:
        facts += _dependents(g, key)
    return Fact(str(key), worst(facts), tuple(facts), key)


def _pair(g: Graph, key: Key) -> Iterator[Fact]:
    if any(query is key_pair for query, *_ in g.readers_at((OBJECTS, key))):
        pair = key_pair(g, key)
        if isinstance(pair, KeyPair):
            yield plain(f"certificate of {pair.subject}, until {day(pair.not_after)}; its private key matches")
            if note := pair_dates(g, key):
                yield warning(note)
        else:
            yield bad("", why=pair)


def _dependents(g: Graph, key: Key) -> list[Fact]:
    """Returns the objects whose status depends on this one."""
    queries = {query: kind for kind, query in STATUS_OF.items()}
    users = sorted(args[0] for query, *args in above(g, (OBJECTS, key)) if query in queries)
    if not users:
        return [warning("nothing uses it")] if key.kind in CONTENT_KINDS else [plain("no status depends on it")]
    return [Fact(f"affects {user}", FactState.PLAIN, (), user) for user in users]


def explain_grant(g: Graph, key: Key) -> Fact:
    obj = read(g, key, ReferenceGrant)
    facts = []
    for reference, name in references(key, obj) if obj else ():
        target = f"every {reference.to_kind}" if name == ANY else f"{reference.to_kind} {name}"
        text = f"lets {reference.from_kind}s of namespace {reference.from_namespace} refer to {target} in {key.namespace}"
        GRANTS.of(g, *reference)
        users = sorted({args[0] for query, *args in above(g, (GRANTS, *reference)) if query in STATUS_OF.values()})
        because = [plain(f"{user} uses this grant", object=user) for user in users] or [plain("nothing uses this grant")]
        facts.append(plain(text, *because))
    return Fact(str(key), because=tuple(facts), object=key)


def explain_xbackend(g: Graph, key: Key) -> Fact:
    obj = read(g, key, XBackend)
    assert obj is not None
    facts = [_where(g, key, obj), *_tls(g, key)]
    reached: dict[Hop, set[Key]] = {}
    for hop in hops(g, key):
        # All HTTP protocols count as one hop for readers.
        shown = hop._replace(protocol=Protocol.AUTO) if hop.protocol.http else hop
        reached.setdefault(shown, set()).update(HOPS.of(g, *hop))
    facts += [_from(g, hop, routes) for hop, routes in sorted(reached.items())]
    if not reached:
        facts.append(warning("no accepted route of a Gateway uses it"))
    return Fact(str(key), worst(facts), tuple(facts), key)


def _where(g: Graph, key: Key, obj: XBackend) -> Fact:
    problem = spec_problem(g, key)
    if problem:
        return bad("refused for all routes: ", why=problem)
    if obj.spec.type == EXTERNAL_HOSTNAME:
        return plain(f"the host {obj.spec.external_hostname.hostname}, port {obj.spec.port.number}")
    labels = ", ".join(f"{name}={value}" for name, value in obj.spec.endpoint_selector.match_labels)
    members = "Pods" if settings(g).pods else "the endpoints of EndpointSlices"
    return plain(f"{members} with {labels}, port {obj.spec.port.number}")


def _tls(g: Graph, key: Key) -> Iterator[Fact]:
    judged = judgement(g, key)
    if judged is None:
        yield plain("uses no TLS (tls.mode None)")
    elif judged.problem:
        yield bad("its TLS settings cannot be used, so it is refused: ", *trust(g, (judgement, key)), why=judged.problem)
    else:
        yield good("its TLS settings are valid", *trust(g, (judgement, key)), *(warning(text) for text in judged.warnings))


def _from(g: Graph, hop: Hop, routes: set[Key]) -> Fact:
    tls, more = tls_fact(g, hop), context_facts(g, hop)
    text = f"from {hop.gateway} by {', '.join(map(str, sorted(routes)))}: {tls.text}"
    return Fact(text, worst((tls, *more)), (*tls.because, *more), missing=tls.missing)
