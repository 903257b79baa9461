"""Turns VirtualServers, and the VirtualServerRoutes that they delegate to, into listeners and rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api.routes import HTTPRequestRedirectFilter, HTTPRouteFilter
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
    PathKind,
    PathMatch,
    RouteKind,
    SecretCertificate,
)
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.order import order_notes
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.actions import CODES, ActionHop, MatchConditions, conditions, outcome
from lasthop_import.systems.nginx.backend_tls import hop_tls
from lasthop_import.systems.nginx.hosts import Hosts
from lasthop_import.systems.nginx.kinds import VIRTUAL_SERVER, VIRTUAL_SERVER_ROUTE
from lasthop_import.systems.nginx.listeners import CustomListeners
from lasthop_import.systems.nginx.paths import location
from lasthop_import.systems.nginx.policies import NginxPolicies, PolicyBook
from lasthop_import.systems.nginx.upstreams import Upstream, read_upstreams

ROOT: Final = ImportedMatch(PathMatch(PathKind.SEGMENT, "/"))
SNIPPETS: Final = "nginx configuration, which may restrict access"
WILDCARD: Final = "tls has no secret, so nginx used the controller's wildcard certificate"


class _Place(msgspec.Struct, frozen=True):
    """Where routes are read: of a VirtualServer, or of a VirtualServerRoute below it."""

    document: Document
    host: str
    upstreams: dict[str, Upstream]
    listeners: tuple[ListenerKey, ...]
    server: NginxPolicies
    inherited: NginxPolicies | None = None
    """Of the VirtualServer's route, for subroutes that have no policies at all."""


class VirtualServers:
    def __init__(self, inputs: Inputs, policies: PolicyBook, named: CustomListeners, hosts: Hosts) -> None:
        self._inputs = inputs
        self._policies = policies
        self._named = named
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
        reader = self._inputs.open(document)
        spec = reader.child("spec")
        host = spec.text("host").lower()
        _common(spec)
        server = self._policies.together(references(spec))
        plain, secure, redirect = self._listeners(spec, host, server)
        listeners = [*([plain] if plain and not redirect else []), *([secure] if secure else [])]
        self.listeners += [each for each in (plain, secure) if each]
        place = _Place(document, host, read_upstreams(spec), tuple(each.key for each in listeners), server)
        ranked: list[tuple[tuple[int, int], ImportedRule]] = []
        for number, route in enumerate(spec.children("routes")):
            if "route" in route or "routeSelector" in route:
                ranked += self._delegated(route, place)
            else:
                ranked += self._route(route, place, number)
        rules = [rule for _, rule in sorted(ranked, key=lambda each: each[0])]
        self._inputs.notes += order_notes(each for each in rules if not each.refused)
        self.rules += rules
        if plain and redirect:
            self.rules.append(
                ImportedRule(
                    source=spec.child("tls").source("redirect"),
                    namespace=document.namespace,
                    route=f"{document.bare_name}-https-redirect",
                    listeners=(plain.key,),
                    hostnames=(host,),
                    matches=(ROOT,),
                    filters=(HTTPRouteFilter("RequestRedirect", request_redirect=redirect),),
                )
            )

    # --- listeners ---------------------------------------------------------------------------------------------------

    def _listeners(
        self, spec: FieldReader, host: str, server: NginxPolicies
    ) -> tuple[ImportedListener | None, ImportedListener | None, HTTPRequestRedirectFilter | None]:
        """Returns the listener for HTTP, that for HTTPS, and the redirect from the one to the other."""
        given = spec.child("listener")
        custom = "listener" in spec
        http = self._named.port(given, "http", 80) if "http" in given or not custom else 0
        https = self._named.port(given, "https", 443) if "https" in given or not custom else 0
        plain = ImportedListener(spec.source("host"), http, "HTTP") if http else None
        if server.clients and "tls" not in spec:
            text = "verifies clients, but the server has no TLS, so nobody was verified"
            spec.note(Category.ACCESS_CONTROL, "client-validation-without-tls", text, "policies")
        if "tls" not in spec or not https:
            spec.child("tls")
            return plain, None, None
        tls = spec.child("tls")
        secret = tls.text("secret")
        certificate: Certificate = SecretCertificate(spec.namespace, secret) if secret else ForeignCertificate(WILDCARD)
        tls.cannot("cert-manager", "the controller asked cert-manager for the certificate; annotate the Gateway instead")
        secure = ImportedListener(tls.source(), https, "HTTPS", host, (certificate,), clients=server.clients)
        redirect = tls.child("redirect")
        enabled, code = redirect.boolean("enable"), redirect.integer("code", 301)
        if redirect.text("basedOn", "scheme") != "scheme":
            text = "requests were redirected by the header of a proxy in front; it is by the port now"
            redirect.note(Category.CHANGED, "redirect-based-on", text, "basedOn")
        found = HTTPRequestRedirectFilter("https", status_code=code if code in CODES else 301) if enabled else None
        return plain, secure, found

    # --- routes ------------------------------------------------------------------------------------------------------

    def _delegated(self, route: FieldReader, place: _Place) -> Iterator[tuple[tuple[int, int], ImportedRule]]:
        """Yields the rules of the VirtualServerRoutes that a route names or selects."""
        path = route.text("path")
        _route_notes(route)
        inherited = self._policies.together(references(route))
        found = self._selected(route, place)
        for number, document in enumerate(found):
            spec = self._inputs.open(document).child("spec")
            spec.ignore("ingressClassName", "host")
            self._used.add(document)
            below = _Place(document, place.host, read_upstreams(spec), place.listeners, place.server, inherited)
            for each, subroute in enumerate(spec.children("subroutes")):
                if not subroute.text("path").startswith(path) and not path.startswith(("~", "=")):
                    text = f"is not below {path}, so the controller did not use the VirtualServerRoute"
                    subroute.note(Category.CHANGED, "subroute-elsewhere", text, "path", severity=NoteSeverity.HIGH)
                yield from self._route(subroute, below, 1000 * number + each)

    def _selected(self, route: FieldReader, place: _Place) -> list[Document]:
        namespace, _, name = route.text("route").rpartition("/")
        namespace = namespace or place.document.namespace
        labels = route.child("routeSelector").mapping("matchLabels")
        found = []
        for document in self._inputs.of(VIRTUAL_SERVER_ROUTE):
            own = document.metadata.get("labels")
            selected = labels and isinstance(own, dict) and labels.items() <= own.items()
            named = name and (document.namespace, document.bare_name) == (namespace, name)
            spec = document.value.get("spec")
            host = spec.get("host") if isinstance(spec, dict) else None
            if (selected or named) and self._hosts.is_ours(document):
                if str(host or "").lower() == place.host:
                    found.append(document)
                else:
                    text = f"its host is not {place.host}, so VirtualServer {place.document.path} did not use it"
                    self._inputs.skip(document, "other-host", text)
                    self._used.add(document)
        if name and not found:
            text = f"VirtualServerRoute {namespace}/{name} of this host is not in the input"
            route.note(Category.TODO, "route-missing", text, "route", remedy="Add it to the input.")
        return found

    def _route(self, route: FieldReader, place: _Place, number: int) -> Iterator[tuple[tuple[int, int], ImportedRule]]:
        _route_notes(route)
        at = location(route.text("path", "/"), number)
        own = self._policies.together(references(route))
        if not route.value.get("policies") and place.inherited is not None:
            own = place.inherited
        meant = not any(each.tls for each in place.upstreams.values())

        def lookup(name: str, reader: FieldReader, key: str) -> ActionHop | None:
            upstream = place.upstreams.get(name)
            if upstream is None:
                text = f"there is no upstream {name!r}, so the controller refused all of {place.document.name}"
                reader.note(Category.CANNOT, "no-upstream", text, key, severity=NoteSeverity.HIGH)
                return None
            tls = hop_tls(upstream.tls, upstream.grpc, place.server, own, "tls.enable", meant)
            h2c = upstream.grpc and not upstream.tls
            return ActionHop(
                ImportedHop(reader.source(key), upstream.backend, tls, h2c=h2c), upstream.grpc, upstream.persistence
            )

        base = ImportedRule(
            source=route.source(),
            namespace=place.document.namespace,
            route=place.document.bare_name,
            listeners=place.listeners,
            hostnames=(place.host,) if place.host else (),
            auth=own.auth or place.server.auth,
        )
        shared = (*own.filters, *place.server.filters)
        choices = [(each, conditions(each, at.path)) for each in route.children("matches")]
        last = (route, MatchConditions(ImportedMatch(at.path)))
        for reader, found in (*choices, last):
            done = outcome(reader, at.path, lookup)
            passed = bool(done.hops)
            yield (
                at.rank,
                msgspec.structs.replace(
                    base,
                    source=reader.source(),
                    kind=RouteKind.GRPC if done.grpc else RouteKind.HTTP,
                    matches=(found.match,),
                    filters=joined((*done.filters, *shared)),
                    hops=done.hops,
                    # nginx answers by itself before it asks anybody.
                    auth=base.auth if passed else None,
                    persistence=done.persistence if passed else None,
                    refused=found.refused or ("" if place.listeners else "the server has no listener"),
                ),
            )


def references(reader: FieldReader) -> Iterable[tuple[str, str, SourceRef]]:
    """Yields the policies that a context names."""
    for each in reader.children("policies"):
        yield each.text("namespace") or reader.namespace, each.text("name"), each.source()


def _common(spec: FieldReader) -> None:
    spec.ignore("ingressClassName", "gunzip", "add-header-inherit")
    for key in ("http-snippets", "server-snippets"):
        spec.access_control(key, SNIPPETS)
    spec.access_control("dos", "protected against denial of service")
    spec.cannot("externalDNS", "the controller wrote a record for external-dns; annotate the Gateway instead")


def _route_notes(route: FieldReader) -> None:
    route.ignore("add-header-inherit")
    route.access_control("location-snippets", SNIPPETS)
    route.access_control("dos", "protected against denial of service")
    route.cannot("errorPages", "the backend's error pages are passed on")
