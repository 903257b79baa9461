"""Translates VirtualServers, and the VirtualServerRoutes that they delegate to, to listeners and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.filters import joined
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ForeignCertificate,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    ListenerKey,
    RouteKind,
    SecretCertificate,
    keys_of,
)
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.order import order_notes
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.actions import ActionHop, Lookup, MatchConditions, conditions, outcome
from lasthop_import.systems.nginx.backend_tls import hop_tls
from lasthop_import.systems.nginx.hosts import Hosts
from lasthop_import.systems.nginx.kinds import VIRTUAL_SERVER, VIRTUAL_SERVER_ROUTE
from lasthop_import.systems.nginx.listeners import CustomListeners
from lasthop_import.systems.nginx.paths import location
from lasthop_import.systems.nginx.policies import NginxPolicies, NginxPolicyReader
from lasthop_import.systems.nginx.upstreams import Upstream, read_upstreams
from lasthop_import.values import REDIRECT_CODES, https_redirect_rule

SNIPPETS: Final = "nginx configuration, which may restrict access"
WILDCARD: Final = "tls has no secret, so nginx used the controller's wildcard certificate"


class _Place(msgspec.Struct, frozen=True):
    """The owner of routes: a VirtualServer, or a VirtualServerRoute below it."""

    document: Document
    host: str
    upstreams: dict[str, Upstream]
    listeners: tuple[ListenerKey, ...]
    server: NginxPolicies
    inherited: NginxPolicies | None = None
    """The policies of the VirtualServer's route, for subroutes without policies."""


class VirtualServers:
    def __init__(self, inputs: Inputs, policies: NginxPolicyReader, custom_listeners: CustomListeners, hosts: Hosts) -> None:
        self._inputs = inputs
        self._policies = policies
        self._custom_listeners = custom_listeners
        self._hosts = hosts
        self._used: set[Document] = set()
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def read(self) -> None:
        for document in self._inputs.of(VIRTUAL_SERVER):
            if self._hosts.serves(document):
                self._server(document)
        for document in self._inputs.of(VIRTUAL_SERVER_ROUTE):
            if document not in self._used and self._hosts.is_ours(document):
                self._inputs.skip(
                    document, "not-referenced", "no VirtualServer of its host delegates to it, so it was not used"
                )

    def _server(self, document: Document) -> None:
        spec = self._inputs.open(document).child("spec")
        host = spec.text("host").lower()
        _common(spec)
        server = self._policies.combine(references(spec))
        plain, secure, redirect_code = self._listeners(spec, host, server)
        listeners = list(filter(None, (plain, secure)))
        self.listeners += listeners
        keys = keys_of(listeners[-1:] if redirect_code else listeners)
        place = _Place(document, host, read_upstreams(spec), keys, server)
        ranked: list[tuple[tuple[int, int], ImportedRule]] = []
        for number, route in enumerate(spec.children("routes")):
            if "route" in route or "routeSelector" in route:
                ranked += self._delegated(route, place)
            else:
                ranked += self._route(route, place, number)
        rules = [rule for _, rule in sorted(ranked, key=itemgetter(0))]
        self._inputs.notes += order_notes(rule for rule in rules if not rule.refused)
        self.rules += rules
        if plain and redirect_code:
            source = spec.child("tls").source("redirect")
            owner = (document.namespace, document.bare_name)
            self.rules.append(https_redirect_rule(source, *owner, (plain.key,), (host,), code=redirect_code))

    # --- listeners ---------------------------------------------------------------------------------------------------

    def _listeners(
        self, spec: FieldReader, host: str, server: NginxPolicies
    ) -> tuple[ImportedListener | None, ImportedListener | None, int]:
        """Returns the HTTP listener, the HTTPS listener, and the status of the redirect from HTTP to HTTPS, or 0."""
        listener, custom = spec.child("listener"), "listener" in spec
        http, https = (
            0 if custom and key not in listener else self._custom_listeners.port(listener, key, usual)
            for key, usual in (("http", 80), ("https", 443))
        )
        plain = ImportedListener(spec.source("host"), http, "HTTP") if http else None
        if server.clients and "tls" not in spec:
            text = "verifies clients, but the server has no TLS, so no client was verified"
            spec.note(Category.ACCESS_CONTROL, "client-validation-without-tls", text, "policies")
        tls = spec.child("tls")
        if "tls" not in spec or not https:
            return plain, None, 0
        secret = tls.text("secret")
        certificate: Certificate = SecretCertificate(spec.namespace, secret) if secret else ForeignCertificate(WILDCARD)
        tls.cannot("cert-manager", "the controller asked cert-manager for the certificate; annotate the Gateway instead")
        secure = ImportedListener(tls.source(), https, "HTTPS", host, (certificate,), clients=server.clients)
        return plain, secure, _redirect_code(tls.child("redirect"))

    # --- routes ------------------------------------------------------------------------------------------------------

    def _delegated(self, route: FieldReader, place: _Place) -> Iterator[tuple[tuple[int, int], ImportedRule]]:
        """Yields the rules of the VirtualServerRoutes that a route names or selects."""
        path = route.text("path")
        _route_notes(route)
        inherited = self._policies.combine(references(route))
        documents = self._selected(route, place)
        for number, document in enumerate(documents):
            spec = self._inputs.open(document).child("spec")
            spec.ignore("ingressClassName", "host")
            self._used.add(document)
            child_place = _Place(document, place.host, read_upstreams(spec), place.listeners, place.server, inherited)
            for position, subroute in enumerate(spec.children("subroutes")):
                if not subroute.text("path").startswith(path) and not path.startswith(("~", "=")):
                    text = f"is not below {path}, so the controller did not use the VirtualServerRoute"
                    subroute.note(Category.CHANGED, "subroute-elsewhere", text, "path", severity=NoteSeverity.HIGH)
                yield from self._route(subroute, child_place, 1000 * number + position)

    def _selected(self, route: FieldReader, place: _Place) -> list[Document]:
        namespace, _, name = route.text("route").rpartition("/")
        namespace = namespace or place.document.namespace
        labels = route.child("routeSelector").mapping("matchLabels")
        documents = []
        for document in self._inputs.of(VIRTUAL_SERVER_ROUTE):
            referenced = bool(name) and (document.namespace, document.bare_name) == (namespace, name)
            if not (referenced or _has_labels(document, labels)) or not self._hosts.is_ours(document):
                continue
            if _host_of(document) == place.host:
                documents.append(document)
            else:
                text = f"its host is not {place.host}, so VirtualServer {place.document.path} did not use it"
                self._inputs.skip(document, "other-host", text)
                self._used.add(document)
        if name and not documents:
            text = f"VirtualServerRoute {namespace}/{name} of this host is not in the input"
            route.note(Category.TODO, "route-missing", text, "route", remedy="Add it to the input.")
        return documents

    def _route(self, route: FieldReader, place: _Place, number: int) -> Iterator[tuple[tuple[int, int], ImportedRule]]:
        _route_notes(route)
        at = location(route.text("path", "/"), number)
        policies = self._policies.combine(references(route))
        if not route.value.get("policies") and place.inherited is not None:
            policies = place.inherited
        if policies.clients:
            text = "verifies clients in a route, which only a server can, so the controller did not do it"
            route.note(Category.ACCESS_CONTROL, "client-validation-in-route", text, "policies")
        base = ImportedRule(
            source=route.source(),
            namespace=place.document.namespace,
            route=place.document.bare_name,
            listeners=place.listeners,
            hostnames=(place.host,) if place.host else (),
        )
        choices = [(match, conditions(match, at.path)) for match in route.children("matches")]
        for reader, matched in (*choices, (route, MatchConditions(ImportedMatch(at.path)))):
            result = outcome(reader, at.path, _lookup(place, policies))
            rule = msgspec.structs.replace(
                base,
                source=reader.source(),
                kind=RouteKind.GRPC if result.grpc else RouteKind.HTTP,
                matches=(matched.match,),
                filters=joined((*result.filters, *policies.filters, *place.server.filters)),
                hops=result.hops,
                refused=matched.refused or ("" if place.listeners else "the server has no listener"),
            )
            # nginx sends its own answer before it authorizes a request.
            auth, persistence = (policies.auth or place.server.auth, result.persistence) if result.hops else (None, None)
            yield at.rank, msgspec.structs.replace(rule, auth=auth, persistence=persistence)


def _redirect_code(redirect: FieldReader) -> int:
    """Returns the status of the redirect to HTTPS; 0 without a redirect."""
    enabled, code = redirect.boolean("enable"), redirect.integer("code", 301) or 301
    if redirect.text("basedOn", "scheme") != "scheme":
        text = "requests were redirected by the header of a proxy in front; it is by the port now"
        redirect.note(Category.CHANGED, "redirect-based-on", text, "basedOn")
    return (code if code in REDIRECT_CODES else 301) if enabled else 0


def _has_labels(document: Document, labels: dict[str, Any]) -> bool:
    return bool(labels) and labels.items() <= document.labels.items()


def _host_of(document: Document) -> str:
    return str(document.spec.get("host") or "").lower()


def _lookup(place: _Place, policies: NginxPolicies) -> Lookup:
    """Returns a function that finds the hop to an action's upstream, with its TLS."""
    intended = not any(upstream.tls for upstream in place.upstreams.values())

    def lookup(name: str, reader: FieldReader, key: str) -> ActionHop | None:
        upstream = place.upstreams.get(name)
        if upstream is None:
            text = f"there is no upstream {name!r}, so the controller refused all of {place.document.name}"
            reader.note(Category.CANNOT, "no-upstream", text, key, severity=NoteSeverity.HIGH)
            return None
        tls = hop_tls(upstream.tls, upstream.grpc, place.server, policies, "tls.enable", intended)
        hop = ImportedHop(reader.source(key), upstream.backend, tls, h2c=upstream.grpc and not upstream.tls)
        return ActionHop(hop, upstream.grpc, upstream.persistence)

    return lookup


def references(reader: FieldReader) -> Iterable[tuple[str, str, SourceRef]]:
    for policy in reader.children("policies"):
        yield policy.text("namespace") or reader.namespace, policy.text("name"), policy.source()


def _common(spec: FieldReader) -> None:
    spec.ignore("ingressClassName", "gunzip", "add-header-inherit")
    for key in ("http-snippets", "server-snippets"):
        spec.access_control(key, SNIPPETS)
    spec.access_control("dos", "protected against denial of service")
    if spec.boolean("internalRoute"):
        spec.access_control("internalRoute", "was served to Pods of the mesh only, not to clients outside")
    spec.cannot("externalDNS", "the controller wrote a record for external-dns; annotate the Gateway instead")


def _route_notes(route: FieldReader) -> None:
    route.ignore("add-header-inherit")
    route.access_control("location-snippets", SNIPPETS)
    route.access_control("dos", "protected against denial of service")
    route.cannot("errorPages", "the backend's error pages are passed on")
