"""Converts Routes into listeners and rules."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Imported,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    ListenerKey,
    PathKind,
    PathMatch,
    RouteKind,
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.openshift.annotations import AnnotationSettings, read_annotations
from lasthop_import.systems.openshift.backend_tls import PASSTHROUGH, REENCRYPT, hop_tls
from lasthop_import.systems.openshift.routes import OpenShiftRoute, read_routes
from lasthop_import.values import ROOT, https_redirect_rule

NO_DEFAULT_CA: Final = "openshift-no-service-ca"
H2C: Final = ("h2c", "kubernetes.io/h2c")

UNMATCHED: Final = Note(
    Category.CHANGED,
    "unmatched-404",
    "requests for a host or path that no Route has got 503 from the router; they get 404 now",
    severity=NoteSeverity.INFO,
)


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    """Reads all Routes that a router serves."""
    importer = _RouteImporter(inputs, default_ca=not settings.flags.get(NO_DEFAULT_CA))
    for route in sorted(read_routes(inputs, settings), key=_age):
        importer.route(route)
    if importer.rules:
        inputs.notes.append(UNMATCHED)
    return Imported(tuple(importer.listeners), tuple(importer.rules))


def _age(route: OpenShiftRoute) -> tuple[str, str, str, str]:
    return (*route.document.age, route.document.kind, route.source.field)


class _RouteImporter:
    def __init__(self, inputs: Inputs, default_ca: bool) -> None:
        self._inputs = inputs
        self._default_ca = default_ca
        self._owners: dict[str, Document] = {}
        self._paths: dict[tuple[str, str], Document] = {}
        self._terminated: dict[str, tuple[bool, Document]] = {}
        """Whether the oldest Route of a host terminates TLS or passes it through; a Gateway cannot do both."""
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def route(self, route: OpenShiftRoute) -> None:
        settings = read_annotations(route)
        if not self._owns(route):
            return
        route = self._without_mixed_tls(route)
        if route.termination == PASSTHROUGH:
            self._passthrough(route)
            return
        plain = ImportedListener(route.source, 80, "HTTP")
        listeners: list[ImportedListener] = []
        if not route.refused:
            if route.tls:
                listeners.append(ImportedListener(route.source, 443, "HTTPS", route.host, (route.certificate,)))
            if route.insecure == "Allow":
                listeners.append(plain)
        self.listeners += listeners
        self._note_plaintext(route)
        matches = (ImportedMatch(_path(route)),)
        refused = route.refused or ("no router served it" if not listeners else "")
        self.rules.append(self._rule(route, settings, keys_of(listeners), matches, refused))
        if route.insecure == "Redirect" and not refused:
            self._redirect(route, plain, matches)

    def _note_plaintext(self, route: OpenShiftRoute) -> None:
        if route.termination == REENCRYPT and route.insecure == "Allow":
            text = "plaintext from clients is accepted although the backend is reached by TLS, as before"
            note = Note(Category.CHANGED, "plaintext-clients", text, route.source, severity=NoteSeverity.INFO)
            self._inputs.notes.append(note)

    def _without_mixed_tls(self, route: OpenShiftRoute) -> OpenShiftRoute:
        """Returns the Route. Refuses it if an older Route of its host terminates TLS and this one passes it through, or vice
        versa."""
        if not route.tls and route.termination != PASSTHROUGH:
            return route
        ends, first = self._terminated.setdefault(route.host, (route.tls, route.document))
        if not route.host or ends == route.tls:
            return route
        why = f"TLS of {route.host} is {'terminated' if ends else 'passed through'} by {first.name}"
        return msgspec.structs.replace(route, refused=why)

    def _rule(
        self,
        route: OpenShiftRoute,
        settings: AnnotationSettings,
        listeners: tuple[ListenerKey, ...],
        matches: tuple[ImportedMatch, ...],
        refused: str,
    ) -> ImportedRule:
        return ImportedRule(
            source=route.source,
            namespace=route.document.namespace,
            route=route.document.bare_name,
            listeners=listeners,
            hostnames=(route.host,) if route.host else (),
            matches=matches,
            filters=settings.filters,
            hops=self._hops(route),
            timeouts=settings.timeouts,
            persistence=settings.persistence if route.backends else None,
            refused=refused,
        )

    def _owns(self, route: OpenShiftRoute) -> bool:
        """Returns whether the namespace owns the host and the Route owns the path. The oldest Route owns both."""
        owner = self._owners.setdefault(route.host, route.document)
        if route.host and owner.namespace != route.document.namespace:
            text = f"{route.host} is claimed by the older {owner.name}, of another namespace"
            self._inputs.notes.append(Note(Category.SKIPPED, "host-claimed", text, route.source))
            return False
        first = self._paths.setdefault((route.host, route.path), route.document)
        if route.host and first is not route.document:
            text = f"{route.host}{route.path} is claimed by the older {first.name}"
            self._inputs.notes.append(Note(Category.SKIPPED, "path-claimed", text, route.source))
            return False
        return True

    def _hops(self, route: OpenShiftRoute) -> tuple[ImportedHop, ...]:
        hops = []
        for backend in route.backends:
            tls = hop_tls(route.termination, route.ca, self._default_ca, backend.service)
            port = self._inputs.port(backend.service.namespace, backend.service.name, backend.service.port)
            h2c = tls is None and port is not None and port.app_protocol in H2C
            hops.append(ImportedHop(backend.source, backend.service, tls, weight=backend.weight, h2c=h2c))
        alone = len(hops) == 1 and hops[0].weight
        return (ImportedHop(hops[0].source, hops[0].backend, hops[0].tls, h2c=hops[0].h2c),) if alone else tuple(hops)

    def _passthrough(self, route: OpenShiftRoute) -> None:
        if route.path:
            text = "a path has no meaning where TLS is passed through; the API refuses it"
            self._inputs.notes.append(Note(Category.CHANGED, "path-ignored", text, route.source))
        listener = ImportedListener(route.source, 443, "TLS", route.host, passthrough=True)
        if not route.refused:
            self.listeners.append(listener)
        self.rules.append(
            ImportedRule(
                source=route.source,
                namespace=route.document.namespace,
                route=route.document.bare_name,
                listeners=() if route.refused else (listener.key,),
                hostnames=(route.host,) if route.host else (),
                kind=RouteKind.TLS,
                hops=self._hops(route),
                refused=route.refused,
            )
        )
        if route.insecure == "Redirect" and not route.refused:
            self._redirect(route, ImportedListener(route.source, 80, "HTTP"), (ROOT,))

    def _redirect(self, route: OpenShiftRoute, plain: ImportedListener, matches: tuple[ImportedMatch, ...]) -> None:
        self.listeners.append(plain)
        owner = (route.document.namespace, route.document.bare_name)
        self.rules.append(https_redirect_rule(route.source, *owner, (plain.key,), (route.host,), matches, 302))


def _path(route: OpenShiftRoute) -> PathMatch:
    path = route.path or "/"
    if route.exact:
        return PathMatch(PathKind.EXACT, path)
    # HAProxy requires the slash at the end of a path; only such paths match differently now.
    return PathMatch(PathKind.STRING if path.endswith("/") else PathKind.SEGMENT, path)
