"""Translates Ingresses with `nginx.org/*` to listeners and rules: ordinary Ingresses, and masters with their minions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api.routes import (
    HTTPRouteFilter,
    SessionPersistence,
)
from lasthop_import.documents import Document
from lasthop_import.filters import joined
from lasthop_import.ingresses import Annotations, IngressObject, PathOf, note_namesake, read_ingress
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
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.systems.nginx.annotations import EVERYWHERE, list_unsupported
from lasthop_import.systems.nginx.backend_tls import hop_tls
from lasthop_import.systems.nginx.hosts import MERGEABLE, Hosts
from lasthop_import.systems.nginx.paths import regex, rewritten
from lasthop_import.systems.nginx.policies import NginxPolicies, NginxPolicyReader, hsts
from lasthop_import.systems.nginx.upstreams import cookie
from lasthop_import.systems.nginx.virtual_servers import WILDCARD
from lasthop_import.values import REDIRECT_CODES, full_path, header_edits, https_redirect_rule, is_port, redirect, url_rewrite

PREFIX: Final = "nginx.org"
OWN_PREFIXES: Final = ("nginx.org/", "nginx.com/", "appprotect.f5.com/", "appprotectdos.f5.com/")
_REWRITE: Final = re.compile(r"\s*serviceName=(?P<service>[^\s;]+)\s+rewrite=(?P<path>[^\s;]+)\s*")
_STICKY: Final = re.compile(r"\s*serviceName=(?P<service>[^\s;]+)\s+(?P<name>[^\s;=]+)(?P<rest>[^;]*)")


class _Ingress(msgspec.Struct, frozen=True):
    """An Ingress, or a minion, with the annotations for its paths."""

    resource: IngressObject
    annotations: Annotations
    policies: NginxPolicies
    ssl: frozenset[str]
    grpc: frozenset[str]
    rewrites: dict[str, str]
    sticky: dict[str, SessionPersistence]


class Ingresses:
    def __init__(self, inputs: Inputs, policies: NginxPolicyReader, hosts: Hosts) -> None:
        self._inputs = inputs
        self._policies = policies
        self._hosts = hosts
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def read(self, documents: list[Document]) -> None:
        ingresses = [self._ingress(document) for document in documents]
        minions = [ingress for ingress in ingresses if ingress.resource.annotation_reader.value.get(MERGEABLE) == "minion"]
        for server in ingresses:
            if server not in minions:
                self._server(server, minions)
        for minion in minions:
            self._note_unused(minion, documents)
        for ingress in ingresses:
            ingress.annotations.reader.ignore(*(ingress.annotations.key(name) for name in EVERYWHERE), MERGEABLE)

    def _note_unused(self, minion: _Ingress, documents: list[Document]) -> None:
        for at in minion.resource.paths:
            if self._hosts.owner(at.host) not in documents:
                text = f"no master has {at.host or 'its host'}, so the minion was not used"
                self._inputs.notes.append(Note(Category.SKIPPED, "no-master", text, at.source))

    def _ingress(self, document: Document) -> _Ingress:
        resource = read_ingress(self._inputs, document)
        annotations = Annotations(resource.annotation_reader, PREFIX)
        note_namesake(resource.reader, OWN_PREFIXES, ("nginx.ingress.kubernetes.io/",), "ingress-nginx")
        list_unsupported(annotations)
        names = [*_split(annotations.text("policies")), *_split(resource.annotation_reader.text("nginx.com/policies"))]
        references = [
            (namespace or resource.namespace, name, annotations.source("policies"))
            for namespace, _, name in (entry.rpartition("/") for entry in names)
        ]
        rewrites = {}
        for entry in filter(str.strip, annotations.text("rewrites").split(";")):
            if match := _REWRITE.fullmatch(entry):
                rewrites[match["service"]] = match["path"]
            else:
                annotations.note(
                    Category.CANNOT, "rewrites", f"{entry.strip()!r} is not a rewrite that the controller reads", "rewrites"
                )
        return _Ingress(
            resource,
            annotations,
            self._policies.combine(references),
            frozenset(_split(annotations.text("ssl-services"))),
            frozenset(_split(annotations.text("grpc-services"))),
            rewrites,
            _sticky(annotations),
        )

    # --- servers -----------------------------------------------------------------------------------------------------

    def _server(self, server: _Ingress, minions: list[_Ingress]) -> None:
        """Reads an ordinary Ingress or a master, host by host."""
        resource = server.resource
        master = resource.annotation_reader.value.get(MERGEABLE) == "master"
        hosts = resource.hosts or (("",) if resource.default else ())
        if master:
            hosts = tuple(dict.fromkeys(rule.text("host").lower() for rule in resource.reader.child("spec").children("rules")))
        for host in hosts:
            owner = self._hosts.owner(host)
            if owner is not None and owner is not resource.document:
                text = f"{host} belongs to the older {owner.name}"
                self._inputs.notes.append(Note(Category.SKIPPED, "host-taken", text, SourceRef(resource.document)))
            else:
                self._host(server, host, _paths(server, host, minions if master else [server]), master)

    def _host(self, server: _Ingress, host: str, paths: list[tuple[_Ingress, PathOf]], master: bool) -> None:
        source, owner = SourceRef(server.resource.document), server.resource
        secure = self._secure(server, host)
        plain = [ImportedListener(source, port, "HTTP") for port in _ports(server.annotations, "listen-ports", 80)]
        redirects = bool(secure) and self._redirects(server.annotations)
        if not secure and server.annotations.boolean("redirect-to-https"):
            text = (
                "requests with X-Forwarded-Proto http, from a balancer that ends TLS, were redirected to HTTPS; the new "
                "gateway does not trust that header, so they are served without TLS now"
            )
            remedy = "Let the balancer redirect, or end TLS here: add tls to the Ingress."
            server.annotations.note(Category.TODO, "redirect-to-https", text, "redirect-to-https", remedy=remedy)
        self.listeners += [*plain, *secure]
        listeners = tuple(listener.key for listener in (*(() if redirects else plain), *secure))
        names = (host,) if host else ()
        shared = self._shared(server, bool(secure))
        taken: dict[tuple[PathKind, str], SourceRef] = {}
        for ingress, at in paths:
            match = _path(ingress.annotations, at)
            if first := taken.get((match.kind, match.value)):
                text = f"{host}{at.path} belongs to {first.object} already"
                self._inputs.notes.append(Note(Category.SKIPPED, "path-taken", text, at.source))
                continue
            taken[match.kind, match.value] = at.source
            rule = self._rule(ingress, at, match, server, master)
            filters = joined((*rule.filters, *shared))
            self.rules.append(msgspec.structs.replace(rule, listeners=listeners, hostnames=names, filters=filters))
        self._app_root(server, names, listeners)
        if redirects:
            code, keys = server.annotations.number("http-redirect-code", 301), keys_of(plain)
            code = code if code in REDIRECT_CODES else 301
            self.rules.append(https_redirect_rule(source, owner.namespace, owner.name, keys, names, code=code))

    def _secure(self, server: _Ingress, host: str) -> list[ImportedListener]:
        for hosts, secret, source in server.resource.tls:
            if host in hosts:
                certificate: Certificate = (
                    SecretCertificate(server.resource.namespace, secret) if secret else ForeignCertificate(WILDCARD)
                )
                ports = _ports(server.annotations, "listen-ports-ssl", 443)
                clients = server.policies.clients
                return [ImportedListener(source, port, "HTTPS", host, (certificate,), clients=clients) for port in ports]
        if server.policies.clients:
            text = "verifies clients, but the host has no TLS, so no client was verified"
            server.annotations.note(Category.ACCESS_CONTROL, "client-validation-without-tls", text, "policies")
        return []

    def _redirects(self, annotations: Annotations) -> bool:
        if annotations.boolean("redirect-to-https"):
            text = "requests were redirected by the header of a proxy in front; it is by the port now"
            annotations.note(Category.CHANGED, "redirect-based-on", text, "redirect-to-https")
            return True
        old = Annotations(annotations.reader, "ingress.kubernetes.io")
        return annotations.boolean("ssl-redirect", old.boolean("ssl-redirect", True))

    def _shared(self, server: _Ingress, secure: bool) -> tuple[HTTPRouteFilter, ...]:
        annotations = server.annotations
        enabled, age = annotations.boolean("hsts"), annotations.number("hsts-max-age", 2592000)
        subdomains = annotations.boolean("hsts-include-subdomains")
        behind = annotations.boolean("hsts-behind-proxy")
        strict = (hsts(age, subdomains),) if enabled and (secure or behind) else ()
        return (*server.policies.filters, *strict)

    def _app_root(self, server: _Ingress, names: tuple[str, ...], listeners: tuple[ListenerKey, ...]) -> None:
        if root := server.annotations.text("app-root"):
            source, owner = server.annotations.source("app-root"), server.resource
            matches = (ImportedMatch(PathMatch(PathKind.EXACT, "/")),)
            filters = (redirect(path=full_path(root)),)
            self.rules.append(
                ImportedRule(source, owner.namespace, owner.name, listeners, names, matches=matches, filters=filters)
            )

    # --- paths -------------------------------------------------------------------------------------------------------

    def _rule(self, ingress: _Ingress, at: PathOf, match: PathMatch, server: _Ingress, master: bool) -> ImportedRule:
        service = at.backend.name if at.backend else ""
        grpc = service in ingress.grpc
        policies = ingress.policies if master else NginxPolicies()
        hops: tuple[ImportedHop, ...] = ()
        if at.backend is not None:
            intended = not ingress.ssl and not server.ssl
            tls = hop_tls(service in ingress.ssl, grpc, server.policies, policies, "nginx.org/ssl-services", intended)
            hops = (ImportedHop(at.source, at.backend, tls, h2c=grpc and tls is None),)
        return ImportedRule(
            source=at.source,
            namespace=ingress.resource.namespace,
            route=ingress.resource.name,
            listeners=(),
            kind=RouteKind.GRPC if grpc else RouteKind.HTTP,
            matches=(ImportedMatch(match),),
            filters=joined((*policies.filters, *_headers(ingress.annotations), *_rewrite(ingress, service, match))),
            hops=hops,
            auth=(ingress.policies.auth or server.policies.auth) if hops else None,
            persistence=ingress.sticky.get(service),
        )


def _paths(server: _Ingress, host: str, owners: list[_Ingress]) -> list[tuple[_Ingress, PathOf]]:
    """Returns the paths of a host, each with its Ingress. The default backend gets the path / if it is unused."""
    paths = [(owner, at) for owner in owners for at in owner.resource.paths if at.host == host]
    default = server.resource.default
    if default is not None and not any(at.path == "/" for _, at in paths):
        source = SourceRef(server.resource.document, ("spec", "defaultBackend"))
        paths.append((server, PathOf(host, "/", "Prefix", default, source)))
    return paths


def _rewrite(ingress: _Ingress, service: str, match: PathMatch) -> tuple[HTTPRouteFilter, ...]:
    annotations = ingress.annotations
    rewrite = rewritten(match, ingress.rewrites.get(service) or annotations.text("rewrite-target"))
    name = "rewrites" if service in ingress.rewrites else "rewrite-target"
    if rewrite.lost:
        annotations.note(Category.CANNOT, "rewrite-dropped", rewrite.lost, name, severity=NoteSeverity.HIGH)
    if rewrite.changed:
        annotations.note(Category.CHANGED, "rewrite-slash", rewrite.changed, name)
    return url_rewrite(path=rewrite.modifier)


def _path(annotations: Annotations, at: PathOf) -> PathMatch:
    """Returns the match of a path. As in nginx, Prefix is a prefix of characters, not of segments."""
    mode = annotations.text("path-regex")
    if mode in ("case_sensitive", "case_insensitive"):
        return regex(at.path if at.path.startswith("^") else f"^{at.path}", mode == "case_insensitive")
    if mode == "exact" or at.path_type == "Exact":
        return PathMatch(PathKind.EXACT, at.path)
    return PathMatch(PathKind.STRING, at.path)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _ports(annotations: Annotations, name: str, usual: int) -> list[int]:
    ports = [int(entry) for entry in _split(annotations.text(name)) if entry.isascii() and entry.isdigit()]
    return sorted({port for port in ports if is_port(port)}) or [usual]


def _headers(annotations: Annotations) -> Iterator[HTTPRouteFilter]:
    """Yields the edits of headers. Headers without a value are omitted."""
    request_headers = _named(annotations, "proxy-set-headers")
    edits = header_edits("RequestHeaderModifier", {}, {name: value for name, value in request_headers.items() if value})
    answers = header_edits(
        "ResponseHeaderModifier",
        {name: value for name, value in _named(annotations, "add-header").items() if value},
        {},
        _split(annotations.text("proxy-hide-headers")),
    )
    for name, refused in (("proxy-set-headers", edits.refused), ("add-header", answers.refused)):
        if refused:
            annotations.note(Category.CANNOT, "headers", f"{', '.join(refused)} cannot be written", name)
    yield from (*edits.filters, *answers.filters)


def _named(annotations: Annotations, name: str) -> dict[str, str]:
    headers = {}
    for entry in _split(annotations.text(name)):
        header, _, value = entry.partition(":")
        if "$" in value:
            annotations.note(Category.CANNOT, "header-variable", f"{header} has a variable of nginx, and is left out", name)
        else:
            headers[header.strip()] = value.strip()
    return headers


def _sticky(annotations: Annotations) -> dict[str, SessionPersistence]:
    sessions = {}
    whole = annotations.text("sticky-cookie-services") or annotations.reader.text("nginx.com/sticky-cookie-services").strip()
    for match in _STICKY.finditer(whole):
        options = dict(option.partition("=")[::2] for option in match["rest"].split())
        sessions[match["service"]] = cookie(match["name"], options.get("path", "/"), options.get("expires", ""))
    return sessions
