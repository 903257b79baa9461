"""Translates hosts and locations to listeners and rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop_import.ingresses import Annotations
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    ClientValidation,
    ForeignCertificate,
    HopTLS,
    Imported,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedRule,
    ListenerKey,
    PathKind,
    PathMatch,
    RouteKind,
    SecretCertificate,
    ServiceBackend,
    TrustRef,
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.ingress_nginx import filters
from lasthop_import.systems.ingress_nginx.backend_tls import GRPC, GRPC_TLS, BackendAnnotations, hop_tls, protocol
from lasthop_import.systems.ingress_nginx.canaries import canary_rules
from lasthop_import.systems.ingress_nginx.config import ControllerConfig, read_config
from lasthop_import.systems.ingress_nginx.ingresses import Ingress, read_ingresses
from lasthop_import.systems.ingress_nginx.locations import IngressHost, IngressLocation, hosts
from lasthop_import.systems.ingress_nginx.rewrites import IngressRewrite, location_match, rewritten
from lasthop_import.systems.ingress_nginx.unsupported import list_unsupported
from lasthop_import.values import ROOT, full_path, https_redirect_rule, redirect

HTTP, HTTPS = 80, 443


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    config = read_config(inputs, settings)
    ingresses = read_ingresses(inputs, settings)
    for ingress in ingresses:
        list_unsupported(ingress.annotations)
    merged_hosts, tls_annotations = hosts(inputs, ingresses, config)
    importer = _IngressImporter(inputs, config, tls_annotations)
    for host in merged_hosts:
        importer.host(host)
    for ingress in ingresses:
        importer.ignore_shared(ingress)
    if ingresses:
        _note_defaults(inputs, config, ingresses[0])
    return Imported(tuple(importer.listeners), tuple(importer.rules))


def _note_defaults(inputs: Inputs, config: ControllerConfig, first: Ingress) -> None:
    if config.body_size != "0":
        text = f"requests with a body of more than {config.body_size} were refused on every host; they are passed on now"
        note = Note(Category.LOOSENED, "body-limit-dropped", text, SourceRef(first.document), severity=NoteSeverity.WARNING)
        inputs.notes.append(note)


class _IngressImporter:
    def __init__(self, inputs: Inputs, config: ControllerConfig, tls_annotations: dict[str, BackendAnnotations]) -> None:
        self._inputs = inputs
        self._config = config
        self._tls_annotations = tls_annotations
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def host(self, host: IngressHost) -> None:
        main = host.locations[0]
        if main.ingress.annotations.boolean("ssl-passthrough"):
            self._passthrough(host, main)
            return
        source = SourceRef(main.ingress.document)
        plain = ImportedListener(source, HTTP, "HTTP")
        forced = any([self._forces_tls(location.ingress) for location in host.locations])
        secure = self._secure(host, forced)
        redirected = [location for location in host.locations if secure and self._redirects(location.ingress, host)]
        self.listeners += [plain, *secure]
        names = (host.name, *host.aliases) if host.name else ()
        for location in host.locations:
            clear = () if location in redirected else (plain.key,)
            self.rules += self._location(location, host, names, (*clear, *(listener.key for listener in secure)), bool(secure))
        self.rules += self._https_redirects(host, redirected, names, plain)
        self._www(host, plain, secure)

    def _https_redirects(
        self, host: IngressHost, redirected: list[IngressLocation], names: tuple[str, ...], plain: ImportedListener
    ) -> Iterator[ImportedRule]:
        """Yields one redirect for a host if all its locations are redirected, else one for each redirected location."""
        if redirected == [*host.locations]:
            yield self._https_redirect(redirected[0], names, plain, (ROOT,))
            return
        for location in redirected:
            yield self._https_redirect(location, names, plain, (self._path(location, host).match,))

    def ignore_shared(self, ingress: Ingress) -> None:
        """Ignores annotations without effect: the main Ingress decides for a canary, and the first Ingress for a host."""
        annotations = ingress.annotations
        for name in _WITH_OTHERS:
            annotations.reader.ignore(annotations.key(name))

    # --- listeners ---------------------------------------------------------------------------------------------------

    def _secure(self, host: IngressHost, forced: bool) -> list[ImportedListener]:
        if host.secret is None and not forced:
            if self._clients(host):
                text = "verifies clients, but the host has no TLS, so no client was verified on port 80"
                at = host.locations[0].ingress.annotations
                at.note(Category.ACCESS_CONTROL, "client-validation-without-tls", text, "auth-tls-secret")
            return []
        namespace, secret, source = host.secret or ("", "", SourceRef(host.locations[0].ingress.document))
        certificate = (
            SecretCertificate(namespace, secret)
            if secret
            else ForeignCertificate("spec.tls has no secretName, so nginx used its default certificate")
        )
        clients = self._clients(host)
        return [
            ImportedListener(source, HTTPS, "HTTPS", name, (certificate,), clients=clients)
            for name in (host.name, *host.aliases)
        ]

    def _clients(self, host: IngressHost) -> ClientValidation | None:
        for location in host.locations:
            annotations = location.ingress.annotations
            secret, mode = annotations.text("auth-tls-secret"), annotations.text("auth-tls-verify-client", "on")
            depth = "auth-tls-verify-depth"
            if not secret or mode == "off":
                continue
            namespace, _, name = secret.rpartition("/")
            if not namespace:
                text = "must be namespace/name, so the locations answered 503"
                annotations.note(Category.ACCESS_CONTROL, "auth-tls-secret", text, "auth-tls-secret")
                continue
            if depth in annotations:
                text = "the new gateway does not limit the length of client certificate chains"
                annotations.note(Category.LOOSENED, "depth-dropped", text, depth)
            if mode in ("optional", "optional_no_ca"):
                text = "the gateway accepts clients without a valid certificate, and does not identify them to the backend"
                annotations.note(Category.CHANGED, "client-validation-optional", f"{mode}: {text}", "auth-tls-verify-client")
            return ClientValidation((TrustRef("Secret", namespace, name),), mode != "on")
        return None

    def _forces_tls(self, ingress: Ingress) -> bool:
        return ingress.annotations.boolean("force-ssl-redirect", self._config.force_ssl_redirect)

    def _redirects(self, ingress: Ingress, host: IngressHost) -> bool:
        usual = ingress.annotations.boolean("ssl-redirect", self._config.ssl_redirect)
        return (usual and host.secret is not None) or self._forces_tls(ingress)

    def _passthrough(self, host: IngressHost, main: IngressLocation) -> None:
        annotations = main.ingress.annotations
        if not host.name:
            annotations.note(Category.CANNOT, "ssl-passthrough", "needs a host", "ssl-passthrough")
            return
        listener = ImportedListener(annotations.source("ssl-passthrough"), HTTPS, "TLS", host.name, passthrough=True)
        self.listeners.append(listener)
        text = "the controller passes TLS through only if it runs with --enable-ssl-passthrough; otherwise it terminates it"
        remedy = "If it does, pass --accept ssl-passthrough; otherwise remove the annotation."
        annotations.note(
            Category.CHANGED, "ssl-passthrough", text, "ssl-passthrough", remedy=remedy, severity=NoteSeverity.HIGH
        )
        if len(host.locations) > 1:
            text = f"{host.name} is passed through, so only its first path has a meaning"
            annotations.note(Category.CHANGED, "paths-ignored", text, "ssl-passthrough")
        for location in host.locations:
            self._consume(location)
            if location.ingress is not main.ingress:
                text = (
                    f"Ingress {main.ingress.namespace}/{main.ingress.name} passes {host.name} through; this path is not served"
                )
                location.ingress.annotations.reader.note(Category.CHANGED, "paths-ignored", text)
        if main.at.backend is None:
            return
        hop = ImportedHop(main.at.source, main.at.backend, HopTLS(OldLevel.PASSTHROUGH, "ssl-passthrough"))
        self.rules.append(
            ImportedRule(
                main.at.source,
                main.ingress.namespace,
                main.ingress.name,
                (listener.key,),
                (host.name,),
                RouteKind.TLS,
                hops=(hop,),
            )
        )

    def _consume(self, location: IngressLocation) -> None:
        """Ignores annotations that have no effect on a path of a host with TLS passthrough."""
        annotations = location.ingress.annotations
        for name in ("rewrite-target", "use-regex", "ssl-redirect", "force-ssl-redirect", "backend-protocol"):
            annotations.reader.ignore(annotations.key(name))

    # --- rules -------------------------------------------------------------------------------------------------------

    def _path(self, location: IngressLocation, host: IngressHost) -> _Path:
        annotations = location.ingress.annotations
        target = annotations.text("rewrite-target")
        if target and target != location.at.path:
            rewrite = rewritten(location.at.path, location.at.path_type, target)
        else:
            rewrite = location_match(location.at.path, location.at.path_type, host.regex)
        return _Path(ImportedMatch(rewrite.path), rewrite)

    def _location(
        self,
        location: IngressLocation,
        host: IngressHost,
        names: tuple[str, ...],
        listeners: tuple[ListenerKey, ...],
        secure: bool,
    ) -> Iterator[ImportedRule]:
        ingress, annotations = location.ingress, location.ingress.annotations
        path = self._path(location, host)
        for reason, text in path.rewrite.changes:
            self._inputs.notes.append(Note(Category.CHANGED, reason, text, location.at.source))
        if path.rewrite.lost:
            annotations.note(
                Category.CANNOT, "rewrite-target", path.rewrite.lost, "rewrite-target", severity=NoteSeverity.HIGH
            )
        backend_protocol = protocol(annotations)
        redirect = filters.redirect(annotations)
        steps = [*filters.headers(self._inputs, ingress, self._config.hsts if secure else ""), *filters.cors(annotations)]
        sessions, mirrors, auth = (
            filters.sessions(annotations),
            filters.mirrors(annotations),
            filters.external_auth(annotations),
        )
        steps += redirect or filters.rewrite(annotations, path.rewrite.modifier)
        rule = ImportedRule(
            source=location.at.source,
            namespace=ingress.namespace,
            route=ingress.name,
            listeners=listeners,
            hostnames=names,
            kind=RouteKind.GRPC if backend_protocol in (GRPC, GRPC_TLS) else RouteKind.HTTP,
            matches=(path.match,),
            filters=tuple(steps),
            hops=() if redirect else self._hops(location, host, backend_protocol),
            mirrors=() if redirect else mirrors,
            auth=auth,
            retry=None if redirect else filters.retry(annotations),
            persistence=None if redirect else sessions,
        )
        if root := annotations.text("app-root"):
            yield self._app_root(rule, annotations, root)
        if path.match.path and path.match.path.kind is PathKind.STRING and path.match.path.value.endswith("/") and rule.hops:
            yield from _slash_added(rule, path.match.path.value, host)
            rule = msgspec.structs.replace(rule, matches=(ImportedMatch(PathMatch(PathKind.SEGMENT, path.match.path.value)),))
        yield from canary_rules(location, rule)

    def _hops(self, location: IngressLocation, host: IngressHost, backend_protocol: str) -> tuple[ImportedHop, ...]:
        if backend_protocol == "FCGI":
            text = "FastCGI has no equivalent; the path answers 500"
            location.ingress.annotations.note(Category.CANNOT, "fastcgi", text, "backend-protocol", severity=NoteSeverity.HIGH)
            return ()
        if location.at.backend is None:
            return ()
        return (self._hop(location.at.backend, location.at.source, location, host, backend_protocol),)

    def _hop(
        self, backend: ServiceBackend, source: SourceRef, location: IngressLocation, host: IngressHost, backend_protocol: str
    ) -> ImportedHop:
        tls = hop_tls(backend_protocol, self._tls_annotations[location.ingress.document.path], host.ssl)
        return ImportedHop(source, backend, tls, h2c=backend_protocol == GRPC)

    def _app_root(self, rule: ImportedRule, annotations: Annotations, root: str) -> ImportedRule:
        if not root.startswith("/"):
            annotations.note(Category.CANNOT, "app-root", "must begin with a slash", "app-root")
        filters.note_query(annotations, "app-root")
        return msgspec.structs.replace(
            rule,
            source=annotations.source("app-root"),
            kind=RouteKind.HTTP,
            matches=(ImportedMatch(PathMatch(PathKind.EXACT, "/")),),
            filters=(redirect(path=full_path(root)),),
            hops=(),
            mirrors=(),
            auth=None,
            persistence=None,
        )

    def _https_redirect(
        self, location: IngressLocation, names: tuple[str, ...], plain: ImportedListener, matches: tuple[ImportedMatch, ...]
    ) -> ImportedRule:
        owner, code = (location.ingress.namespace, location.ingress.name), self._config.redirect_code
        return https_redirect_rule(location.at.source, *owner, (plain.key,), names, matches, code)

    def _www(self, host: IngressHost, plain: ImportedListener, secure: list[ImportedListener]) -> None:
        """Adds the redirect from the www. twin of a host, or to it."""
        owner = next(
            (location for location in host.locations if location.ingress.annotations.boolean("from-to-www-redirect")), None
        )
        if owner is None or not host.name or host.name.startswith("*."):
            return
        twin = host.name.removeprefix("www.") if host.name.startswith("www.") else f"www.{host.name}"
        source = owner.ingress.annotations.source("from-to-www-redirect")
        listeners = [plain]
        if secure:
            twin_listener = msgspec.structs.replace(secure[0], hostname=twin, source=source)
            self.listeners.append(twin_listener)
            listeners.append(twin_listener)
        self.rules.append(
            ImportedRule(
                source=source,
                namespace=owner.ingress.namespace,
                route=f"{owner.ingress.name}-www-redirect",
                listeners=keys_of(listeners),
                hostnames=(twin,),
                matches=(ROOT,),
                filters=(redirect(host=host.name, code=self._config.redirect_code),),
            )
        )


def _slash_added(rule: ImportedRule, path: str, host: IngressHost) -> Iterator[ImportedRule]:
    """Yields nginx's implicit redirect to a location that ends with a slash, from the path without the slash."""
    short = path.rstrip("/")
    if short and not any(location.at.path == short for location in host.locations):
        yield msgspec.structs.replace(
            rule,
            kind=RouteKind.HTTP,
            matches=(ImportedMatch(PathMatch(PathKind.EXACT, short)),),
            filters=(redirect(path=full_path(path), code=301),),
            hops=(),
            mirrors=(),
            retry=None,
            persistence=None,
        )


class _Path(msgspec.Struct, frozen=True):
    match: ImportedMatch
    rewrite: IngressRewrite


_WITH_OTHERS: Final = (
    *(f"canary{suffix}" for suffix in ("", "-weight", "-by-header", "-by-header-value", "-by-header-pattern", "-by-cookie")),
    "canary-weight-total",
    *(f"proxy-ssl-{suffix}" for suffix in ("name", "server-name", "verify", "secret")),
    *("rewrite-target", "use-regex", "ssl-redirect", "force-ssl-redirect", "app-root", "server-alias", "backend-protocol"),
    *("from-to-www-redirect", "ssl-passthrough", "auth-tls-secret", "auth-tls-verify-client", "auth-tls-verify-depth"),
    *("permanent-redirect", "permanent-redirect-code", "temporal-redirect", "temporal-redirect-code"),
    *("upstream-vhost", "x-forwarded-prefix", "custom-headers", "affinity", "mirror-target", "auth-url"),
    *(f"session-cookie-{suffix}" for suffix in ("name", "path", "max-age")),
    *("auth-response-headers", "enable-cors", "cors-expose-headers", "cors-max-age"),
    *(f"cors-allow-{suffix}" for suffix in ("origin", "methods", "headers", "credentials")),
)
"""Annotations that other functions read where they have an effect."""
