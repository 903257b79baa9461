"""Reads IngressRoutes, IngressRouteTCPs and IngressRouteUDPs."""

from __future__ import annotations

import msgspec

from lasthop_import.documents import Document
from lasthop_import.ingresses import CLASS_ANNOTATION, of_classes
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    HopTLS,
    HostBackend,
    ImportedHop,
    ImportedListener,
    ImportedRule,
    RouteKind,
    ServiceBackend,
    keys_of,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.traefik.backend_tls import hop_tls
from lasthop_import.systems.traefik.front import EntryPointListeners, Termination
from lasthop_import.systems.traefik.kinds import OLD_GROUP, TraefikObjects
from lasthop_import.systems.traefik.matches import Alternative, Unwritable, alternatives, server_names
from lasthop_import.systems.traefik.middlewares import Middlewares
from lasthop_import.systems.traefik.rules import Router, TraefikRules
from lasthop_import.systems.traefik.services import ServiceReference, TraefikServices, not_permitted
from lasthop_import.systems.traefik.static import EntryPoint, Static


class TraefikContext(msgspec.Struct, frozen=True):
    inputs: Inputs
    settings: ImportSettings
    objects: TraefikObjects
    static: Static
    services: TraefikServices
    middlewares: Middlewares
    front: EntryPointListeners
    rules: TraefikRules


def chosen(context: TraefikContext, kind: str) -> list[Document]:
    """Returns the routes of a kind that Traefik serves. The default classes are traefik and none."""
    documents = list(context.objects.of(kind))
    return of_classes(context.inputs, context.settings, documents, known=("traefik", ""))


def read_ingress_routes(context: TraefikContext) -> None:
    for document in chosen(context, "IngressRoute"):
        reader = _opened(context, document)
        spec = reader.child("spec")
        termination = context.front.termination(spec.child("tls"), reader.namespace) if "tls" in spec else None
        points = context.front.points(spec, spec.texts("entryPoints"), "entryPoints", tls=termination is not None)
        layered = "parentRefs" in spec
        spec.cannot("parentRefs", "routes below other routes have no equivalent", "parent-routes")
        for route in spec.children("routes"):
            router = _router(context, reader, route)._replace(points=points, tls=termination, only_tls=termination is not None)
            if layered:
                router = router._replace(refused="it is below another route, whose conditions hold too")
            context.rules.add(router)


def _opened(context: TraefikContext, document: Document) -> FieldReader:
    reader = context.inputs.open(document)
    reader.annotations().ignore(CLASS_ANNOTATION)
    reader.child("spec").ignore("ingressClassName")
    return reader


def _router(context: TraefikContext, reader: FieldReader, route: FieldReader) -> Router:
    rule, syntax, kind = route.text("match"), route.text("syntax"), route.text("kind")
    route.cannot("observability", "logs, metrics and tracing are not configured by route")
    priority = route.integer("priority") or 0
    service_hops = context.services.read(route.children("services"), reader.namespace)
    references = [*route.children("middlewares"), *service_hops.middlewares]
    if service_hops.middlewares and len(service_hops.hops) > 1:
        text = "middlewares of one service are applied to all services of the route now"
        route.note(Category.CHANGED, "service-middlewares", text, None, severity=NoteSeverity.HIGH)
    refused, conditions = "", tuple[Alternative, ...]()
    try:
        conditions = alternatives(rule, v2=syntax == "v2" or (not syntax and reader.document.group == OLD_GROUP))
    except Unwritable as error:
        refused = str(error)
    if kind not in ("", "Rule"):
        refused = f"its kind is {kind[:40]}, not Rule, so it was not served"
    return Router(
        route.source(),
        reader.namespace,
        reader.document.bare_name,
        conditions,
        (),
        priority or len(rule),
        service_hops,
        context.middlewares.read(references, reader.namespace),
        refused=refused,
    )


# --- connections -----------------------------------------------------------------------------------------------------


def read_connections(context: TraefikContext) -> tuple[ImportedRule, ...]:
    rules: list[ImportedRule] = []
    for document in chosen(context, "IngressRouteTCP"):
        spec = _opened(context, document).child("spec")
        tls = "tls" in spec
        points = context.front.points(spec, spec.texts("entryPoints"), "entryPoints", tls=tls)
        passthrough = spec.child("tls").boolean("passthrough")
        termination = context.front.termination(spec.child("tls"), spec.namespace) if tls else None
        for route in spec.children("routes"):
            rules.append(_connection(context, route, points, termination, passthrough=passthrough))
    for document in chosen(context, "IngressRouteUDP"):
        spec = _opened(context, document).child("spec")
        points = context.front.udp_points(spec)
        rules += [_datagrams(context, route, points) for route in spec.children("routes")]
    return tuple(rules)


def _over_udp(hop: ImportedHop) -> ImportedHop:
    if not isinstance(hop.backend, ServiceBackend):
        return hop
    return msgspec.structs.replace(hop, backend=msgspec.structs.replace(hop.backend, protocol="UDP"))


def _datagrams(context: TraefikContext, route: FieldReader, points: tuple[EntryPoint, ...]) -> ImportedRule:
    """Returns the rule of a UDP route, and adds its listeners. The rule is refused if it cannot be written."""
    hops = _stream_hops(context, route.children("services"), route.namespace, passthrough=False)
    hops = tuple(map(_over_udp, hops))
    rule = ImportedRule(route.source(), route.namespace, route.document.bare_name, (), kind=RouteKind.UDP, hops=hops)
    refused = _foreign(context, route.namespace, hops) or ("" if points else "none of its entry points is known")
    if any(isinstance(hop.backend, HostBackend) for hop in hops):
        refused = "a host outside cannot be the backend of a UDPRoute"
    listeners = [ImportedListener(route.source(), point.port, "UDP") for point in points]
    if any(listener.key in keys_of(listeners) for listener in context.front.listeners):
        refused = "another route uses the same entry point; UDP has no field that distinguishes them"
    if refused:
        return msgspec.structs.replace(rule, refused=refused)
    context.front.listeners += listeners
    return msgspec.structs.replace(rule, listeners=keys_of(listeners))


def _connection(
    context: TraefikContext,
    route: FieldReader,
    points: tuple[EntryPoint, ...],
    termination: Termination | None,
    *,
    passthrough: bool,
) -> ImportedRule:
    """Returns the rule of a TCP route, and adds its listeners. The rule is refused if it cannot be written."""
    tls = termination is not None
    certificates = (termination.certificate,) if termination and not passthrough else ()
    clients = termination.clients if termination and not passthrough else None
    hops = _stream_hops(context, route.children("services"), route.namespace, passthrough)
    route.ignore("priority", "syntax")
    _list_middlewares(context, route, route.namespace)
    rule = ImportedRule(route.source(), route.namespace, route.document.bare_name, (), kind=RouteKind.TLS, hops=hops)
    try:
        hosts = server_names(route.text("match"))
    except Unwritable as error:
        return msgspec.structs.replace(rule, refused=str(error))
    protocol = "TLS" if tls else "TCP"
    refused = _connection_problem(context, route.namespace, hops, points, hosts, tls=tls)
    listeners: list[ImportedListener] = []
    for point in points:
        for host in hosts or ("",):
            if context.front.taken(point.port, host, protocol):
                refused = f"other routes use the entry point {point.name} in a way that a Gateway cannot tell apart"
            listeners.append(
                ImportedListener(route.source(), point.port, protocol, host, certificates, tls and passthrough, clients)
            )
    if refused:
        return msgspec.structs.replace(rule, refused=refused)
    context.front.listeners += listeners
    keys = keys_of(listeners)
    return msgspec.structs.replace(rule, listeners=keys, hostnames=hosts, kind=RouteKind.TLS if tls else RouteKind.TCP)


def _connection_problem(
    context: TraefikContext,
    namespace: str,
    hops: tuple[ImportedHop, ...],
    points: tuple[EntryPoint, ...],
    hosts: tuple[str, ...],
    *,
    tls: bool,
) -> str:
    if hosts and not tls:
        return "only TLS has names, and the route has none"
    if tls and not hosts:
        return "it takes all connections with TLS, and a route needs names"
    return _foreign(context, namespace, hops) or ("" if points else "none of its entry points is known")


def _foreign(context: TraefikContext, namespace: str, hops: tuple[ImportedHop, ...]) -> str:
    """Returns the reason why Services of other namespaces were not served; empty if there are none, or they were served."""
    foreign = [hop.backend for hop in hops if hop.backend.namespace != namespace]
    if foreign and not context.static.cross_namespace:
        return not_permitted(f"Service {foreign[0].namespace}/{foreign[0].name}")
    return ""


def _stream_hops(
    context: TraefikContext, services: list[FieldReader], parent: str, passthrough: bool
) -> tuple[ImportedHop, ...]:
    return tuple(_stream_hop(context, service, parent, passthrough, several=len(services) > 1) for service in services)


def _stream_hop(context: TraefikContext, reader: FieldReader, parent: str, passthrough: bool, *, several: bool) -> ImportedHop:
    namespace = reader.text("namespace") or parent
    tls, transport = reader.boolean("tls"), reader.text("serversTransport")
    for key in ("terminationDelay", "nodePortLB", "nativeLB"):
        reader.cannot(key, "connections have no such setting")
    reader.cannot("proxyProtocol", "Traefik sent the PROXY protocol to backends; the new gateway does not")
    weight = reader.integer("weight", 1)
    reference = ServiceReference(
        reader.source(), namespace, reader.text("name"), reader.port("port"), "", transport, False, True
    )
    backend = context.services.backend(reference)
    host = backend.hostname if isinstance(backend, HostBackend) else ""
    hop = ImportedHop(reader.source(), backend, None, max(0, weight if weight is not None else 1) if several else 1)
    if not tls:
        return msgspec.structs.replace(hop, tls=HopTLS(OldLevel.PASSTHROUGH, "tls.passthrough")) if passthrough else hop
    return msgspec.structs.replace(hop, tls=_stream_tls(context, transport, parent, host, passthrough=passthrough))


def _stream_tls(context: TraefikContext, transport: str, parent: str, host: str, *, passthrough: bool) -> HopTLS:
    """Returns the TLS that the gateway starts for a connection."""
    resolved = context.services.transport("ServersTransportTCP", transport, parent)
    if passthrough:
        return HopTLS(OldLevel.BROKEN, "the client's TLS was passed through within other TLS")
    if isinstance(resolved, str):
        return HopTLS(OldLevel.UNKNOWN, resolved)
    return hop_tls(resolved, host, default_known=bool(transport) or context.static.known)


def _list_middlewares(context: TraefikContext, route: FieldReader, namespace: str) -> None:
    for reference in route.children("middlewares"):
        middleware = context.objects.find("MiddlewareTCP", reference.text("namespace") or namespace, reference.text("name"))
        if middleware is None:
            reference.note(Category.ACCESS_CONTROL, "middleware-unknown", "the MiddlewareTCP is not in the input", "name")
            continue
        spec = middleware.child("spec")
        for key in sorted(spec.value):
            spec.access_control(key, "restricted connections, which is not carried over")
