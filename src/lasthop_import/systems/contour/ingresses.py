"""Converts Ingresses of Contour into listeners and rules. Only the Service requires TLS to backends, which is never
verified."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPRouteRetry, HTTPRouteTimeouts
from lasthop_import.ingresses import IngressObject, PathOf, read_ingress
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
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.contour.backend_tls import ContourBackends
from lasthop_import.systems.contour.filters import response_timeout
from lasthop_import.systems.contour.kinds import CLASS_ANNOTATIONS, class_of, is_ours
from lasthop_import.systems.contour.proxies import HTTP, HTTPS
from lasthop_import.values import duration, https_redirect_rule, is_host, is_number

KINDS: Final = {"Exact": PathKind.EXACT, "Prefix": PathKind.SEGMENT}
_REGEX: Final = re.compile(r"[\^+*\[\]%()$|?{}\\]")
_PREFIX: Final = "projectcontour.io/"


class _Annotated(NamedTuple):
    """The annotations of an Ingress that apply to all its paths."""

    forced: bool
    """Redirects plain HTTP to HTTPS for hosts with TLS."""
    plain: bool
    owner: str
    """The namespace of the certificates."""
    timeouts: HTTPRouteTimeouts
    retry: HTTPRouteRetry | None


class IngressReader:
    def __init__(self, inputs: Inputs, settings: ImportSettings, backends: ContourBackends) -> None:
        self._inputs = inputs
        self._settings = settings
        self._backends = backends
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def read(self) -> None:
        for document in self._inputs.of(INGRESS):
            if is_ours(document, self._settings):
                self._ingress(read_ingress(self._inputs, document))
            else:
                text = f"its class is {class_of(document)}, not contour; see --ingress-class"
                self._inputs.skip(document, "other-class", text)

    def _ingress(self, ingress: IngressObject) -> None:
        annotated = _annotated(ingress)
        secrets = {host: name for hosts, name, _ in ingress.tls for host in hosts}
        paths = list(ingress.paths)
        if "defaultBackend" in ingress.reader.child("spec"):
            source = SourceRef(ingress.document, ("spec", "defaultBackend"))
            paths.append(PathOf("", "/", "Prefix", ingress.default, source))
        for path in paths:
            if path.host and not is_host(path.host):
                text = f"{path.host[:100]} cannot be the hostname of a listener; it is left out"
                self._inputs.notes.append(Note(Category.CANNOT, "host", text, path.source, severity=NoteSeverity.HIGH))
            else:
                self._path(ingress, path, annotated, secrets.get(path.host))

    def _path(self, ingress: IngressObject, path: PathOf, annotated: _Annotated, secret: str | None) -> None:
        """Adds the rule of a path, and the redirect to HTTPS; `secret`: None without TLS."""
        source = ingress.reader.source()
        plain = [ImportedListener(source, HTTP, "HTTP", path.host)] if annotated.plain else []
        secure = []
        if secret is not None:
            certificate = SecretCertificate(annotated.owner, secret) if secret else NO_SECRET
            secure = [ImportedListener(source, HTTPS, "HTTPS", path.host, (certificate,))]
        self.listeners += [*plain, *secure]
        redirected = annotated.forced and bool(secure)
        served = secure if redirected else [*plain, *secure]
        names, matches = (path.host,) if path.host else (), (ImportedMatch(_path(path)),)
        rule = ImportedRule(
            source=path.source,
            namespace=ingress.namespace,
            route=ingress.name,
            listeners=keys_of(served),
            hostnames=names,
            matches=matches,
            hops=self._hops(path),
            timeouts=annotated.timeouts,
            retry=annotated.retry,
        )
        if served:
            self.rules.append(rule)
        if redirected and plain:
            redirect = https_redirect_rule(path.source, ingress.namespace, ingress.name, (plain[0].key,), names, matches)
            self.rules.append(redirect)

    def _hops(self, path: PathOf) -> tuple[ImportedHop, ...]:
        if path.backend is None:
            return ()
        namespace, name, port = path.backend.namespace, path.backend.name, path.backend.port
        protocol = self._backends.protocol(namespace, name, port)
        target = self._backends.backend(namespace, name, port)
        source = path.source if path.source.path == ("spec", "defaultBackend") else path.source.below("backend")
        return (ImportedHop(source, target, self._backends.ingress_tls(protocol), h2c=protocol == "h2c"),)


NO_SECRET: Final = ForeignCertificate("spec.tls has no secretName")


def _annotated(ingress: IngressObject) -> _Annotated:
    reader = ingress.annotation_reader
    reader.ignore(*CLASS_ANNOTATIONS, f"{_PREFIX}websocket-routes")
    for key in ("tls-minimum-protocol-version", "tls-maximum-protocol-version"):
        reader.cannot(f"{_PREFIX}{key}", "TLS versions for clients cannot be set by host")
    timeout = response_timeout(reader.text(f"{_PREFIX}response-timeout") or "15s")
    return _Annotated(
        forced=reader.text("ingress.kubernetes.io/force-ssl-redirect") == "true",
        plain=reader.text("kubernetes.io/ingress.allow-http") != "false",
        owner=reader.text(f"{_PREFIX}tls-cert-namespace") or ingress.namespace,
        timeouts=HTTPRouteTimeouts("" if timeout is None else duration(timeout)),
        retry=_retry(reader),
    )


def _retry(annotations: FieldReader) -> HTTPRouteRetry | None:
    on, count = annotations.text(f"{_PREFIX}retry-on"), annotations.text(f"{_PREFIX}num-retries")
    annotations.cannot(f"{_PREFIX}per-try-timeout", "a try cannot have a separate timeout")
    attempts = int(count) if is_number(count) and len(count) < 4 else 1
    return HTTPRouteRetry((500, 502, 503, 504) if "5xx" in on else (), max(1, min(attempts, 100))) if on else None


def _path(path: PathOf) -> PathMatch:
    if path.path_type in KINDS:
        return PathMatch(KINDS[path.path_type], path.path)
    return PathMatch(PathKind.REGEX, f"{path.path}.*") if _REGEX.search(path.path) else PathMatch(PathKind.STRING, path.path)
