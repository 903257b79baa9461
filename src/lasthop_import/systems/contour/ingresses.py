"""Turns Ingresses of Contour into listeners and rules: TLS to backends by the Service only, and never verified."""

from __future__ import annotations

import re
from typing import Final

from lasthop.base.api.routes import HTTPRouteRetry, HTTPRouteTimeouts
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.model import (
    ForeignCertificate,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    PathKind,
    PathMatch,
    SecretCertificate,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.contour.backend_tls import ContourBackends
from lasthop_import.systems.contour.kinds import CLASS_ANNOTATIONS, Delegations, class_of, is_ours
from lasthop_import.systems.contour.proxies import HTTP, HTTPS, HTTPS_REDIRECT
from lasthop_import.values import duration, is_host, milliseconds

KINDS: Final = {"Exact": PathKind.EXACT, "Prefix": PathKind.SEGMENT}
_REGEX: Final = re.compile(r"[\^+*\[\]%()$|?{}\\]")
_PREFIX: Final = "projectcontour.io/"


class IngressReader:
    def __init__(self, inputs: Inputs, settings: ImportSettings, delegations: Delegations, backends: ContourBackends) -> None:
        self._inputs = inputs
        self._settings = settings
        self._delegations = delegations
        self._backends = backends
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def read(self) -> None:
        for document in self._inputs.of(INGRESS):
            if is_ours(document, self._settings):
                self._ingress(self._inputs.open(document))
            else:
                text = f"its class is {class_of(document)}, not contour; see --ingress-class"
                self._inputs.skip(document, "other-class", text)

    def _ingress(self, reader: FieldReader) -> None:
        spec, notes = reader.child("spec"), reader.annotations()
        spec.ignore("ingressClassName")
        notes.ignore(*CLASS_ANNOTATIONS)
        forced = notes.text("ingress.kubernetes.io/force-ssl-redirect") == "true"
        plain = notes.text("kubernetes.io/ingress.allow-http") != "false"
        owner = notes.text(f"{_PREFIX}tls-cert-namespace") or reader.namespace
        notes.ignore(f"{_PREFIX}websocket-routes")
        for key in ("tls-minimum-protocol-version", "tls-maximum-protocol-version"):
            notes.cannot(f"{_PREFIX}{key}", "TLS versions for clients cannot be set by host")
        timeouts, retry = self._times(notes)
        secrets = {h.lower(): each.text("secretName") for each in spec.children("tls") for h in each.texts("hosts")}
        paths = [(rule, path) for rule in spec.children("rules") for path in rule.child("http").children("paths")]
        targets = [(rule.text("host").lower(), path, path.child("backend")) for rule, path in paths]
        if "defaultBackend" in spec:
            targets.append(("", spec.child("defaultBackend"), spec.child("defaultBackend")))
        for rule in spec.children("rules"):
            rule.ignore("host")
        for host, path, backend in targets:
            if host and not is_host(host):
                path.note(Category.CANNOT, "host", f"{host[:100]} cannot be the hostname of a listener; it is left out")
                path.ignore(*path.value)
                continue
            listeners = [ImportedListener(reader.source(), HTTP, "HTTP", host)] if plain else []
            secure = []
            if host in secrets:
                secure = [
                    ImportedListener(reader.source(), HTTPS, "HTTPS", host, (self._certificate(reader, owner, secrets[host]),))
                ]
            match = ImportedMatch(_path(path)) if path is not backend else ImportedMatch(PathMatch(PathKind.SEGMENT, "/"))
            hop = self._hop(backend)
            served = secure if forced and secure else [*listeners, *secure]
            base = ImportedRule(
                source=path.source(),
                namespace=reader.namespace,
                route=reader.document.bare_name,
                listeners=tuple(each.key for each in served),
                hostnames=(host,) if host else (),
                matches=(match,),
                hops=(hop,) if hop else (),
                timeouts=timeouts,
                retry=retry,
            )
            self.listeners += [*listeners, *secure]
            if served:
                self.rules.append(base)
            if forced and secure and listeners:
                self.rules.append(
                    ImportedRule(
                        source=path.source(),
                        namespace=reader.namespace,
                        route=f"{reader.document.bare_name}-https-redirect",
                        listeners=(listeners[0].key,),
                        hostnames=base.hostnames,
                        matches=(match,),
                        filters=(HTTPS_REDIRECT,),
                    )
                )

    def _certificate(self, reader: FieldReader, owner: str, name: str) -> SecretCertificate | ForeignCertificate:
        if not name:
            return ForeignCertificate("spec.tls has no secretName")
        return SecretCertificate(owner, name)

    def _hop(self, backend: FieldReader) -> ImportedHop | None:
        if "resource" in backend:
            backend.cannot("resource", "a backend that is no Service was never served")
            return None
        service = backend.child("service")
        name, port = service.text("name"), service.child("port")
        wanted = port.port("number") or port.text("name") or None
        port.ignore("name", "number")
        if not name:
            backend.note(Category.CANNOT, "no-backend", "names no Service", severity=NoteSeverity.HIGH)
            return None
        spoken = self._backends.protocol(backend.namespace, name, wanted)
        target = self._backends.backend(backend.namespace, name, wanted)
        return ImportedHop(backend.source(), target, self._backends.ingress_tls(spoken), h2c=spoken == "h2c")

    def _times(self, notes: FieldReader) -> tuple[HTTPRouteTimeouts, HTTPRouteRetry | None]:
        text = notes.text(f"{_PREFIX}response-timeout")
        found = 0 if text in ("infinity", "infinite") else milliseconds(text) if text else 15_000
        on, count = notes.text(f"{_PREFIX}retry-on"), notes.text(f"{_PREFIX}num-retries")
        notes.cannot(f"{_PREFIX}per-try-timeout", "one try has no timeout of its own")
        attempts = int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 1
        retry = HTTPRouteRetry((500, 502, 503, 504) if "5xx" in on else (), max(1, min(attempts, 100))) if on else None
        return HTTPRouteTimeouts("" if found is None else duration(found)), retry


def _path(path: FieldReader) -> PathMatch:
    value, kind = path.text("path") or "/", path.text("pathType")
    if kind in KINDS:
        return PathMatch(KINDS[kind], value)
    return PathMatch(PathKind.REGEX, f"{value}.*") if _REGEX.search(value) else PathMatch(PathKind.STRING, value)
