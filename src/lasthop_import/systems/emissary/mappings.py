"""Turns Mappings and TCPMappings into rules. Mappings that match the same are one rule, and share its requests by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    Auth,
    HostBackend,
    ImportedHop,
    ImportedMatch,
    ImportedMirror,
    ImportedRule,
    ImportedValueMatch,
    Name,
    PathKind,
    PathMatch,
    RouteKind,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary import filters
from lasthop_import.systems.emissary.backend_tls import Contexts
from lasthop_import.systems.emissary.hosts import HostListeners
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.systems.emissary.services import EmissaryServices
from lasthop_import.values import TOKEN, exact_path, is_host, is_port, methods, string_prefix, value_match

CANNOT: Final = {
    "circuit_breakers": "limits of connections are the new gateway's own",
    "outlier_detection": "an endpoint is ejected only because connections to it keep failing",
    "health_checks": "endpoints are not probed",
    "keepalive": "keep-alive of connections is the new gateway's own",
    "error_response_overrides": "the backend's error pages are passed on",
    "idle_timeout_ms": "idle timeouts are the new gateway's own",
    "connect_timeout_ms": "the connect timeout is the new gateway's own",
    "cluster_idle_timeout_ms": "idle timeouts are the new gateway's own",
    "cluster_max_connection_lifetime_ms": "connections have no longest lifetime",
    "add_linkerd_headers": "headers of Linkerd are not added",
    "auth_context_extensions": "the authorization server is not told more about a route",
    "modules": "settings of modules by route have no equivalent",
    "priority": "requests have no priority",
}
HIGH: Final = {"envoy_override": "changes Envoy's configuration in any way, and is not carried over"}
IGNORED: Final = (
    *("bypass_error_response_overrides", "cluster_tag", "dns_type", "respect_dns_ttl", "docs", "stats_name", "use_websocket"),
    *("allow_upgrade", "v2BoolHeaders", "v2BoolQueryParameters", "v2ExplicitTLS", "v3StatsName", "v3health_checks"),
)
"""Whose absence nobody notices: upgrades to WebSocket always work."""


class Matched(msgspec.Struct, frozen=True):
    """A Mapping with what it matches."""

    spec: FieldReader
    hostname: str
    """Empty: any."""
    path: PathMatch
    matches: tuple[ImportedMatch, ...]
    precedence: int
    key: tuple[object, ...]


class MappingReader:
    def __init__(
        self, inputs: Inputs, objects: EmissaryObjects, contexts: Contexts, front: HostListeners, services: EmissaryServices
    ) -> None:
        self._inputs = inputs
        self._objects = objects
        self._contexts = contexts
        self._front = front
        self._services = services
        self.rules: list[ImportedRule] = []

    def read(self) -> None:
        auth = self._auth()
        groups: dict[tuple[object, ...], list[Matched]] = {}
        for reader in self._objects.of("Mapping"):
            if (matched := _matched(reader.child("spec"))) is not None:
                groups.setdefault(matched.key, []).append(matched)
        for group in groups.values():
            self._rule(group, auth)
        for reader in self._objects.of("TCPMapping"):
            self._stream(reader.child("spec"))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _rule(self, group: Sequence[Matched], auth: Auth | None) -> None:
        first = next((each for each in group if not each.spec.value.get("shadow")), group[0])
        spec = first.spec
        listeners = self._front.http(spec.source(), first.hostname, spec.document.labels)
        redirected, bypassed, grpc = spec.boolean("host_redirect"), spec.boolean("bypass_auth"), spec.boolean("grpc")
        steps = (*filters.headers(spec), *filters.cors_filter(spec))
        base = ImportedRule(
            source=spec.source(),
            namespace=spec.namespace,
            route=spec.document.bare_name,
            listeners=tuple(dict.fromkeys(each.key for each in listeners)),
            hostnames=(first.hostname,) if first.hostname else (),
            matches=first.matches,
        )
        timeouts, retry, sessions = filters.timeouts(spec), filters.retry(spec), filters.sessions(spec)
        if redirected:
            rule = msgspec.structs.replace(base, filters=(*steps, filters.redirect_filter(spec, first.path)))
            spec.ignore("tls", "weight", "resolver", "grpc", "rewrite", "regex_rewrite", "host_rewrite", "auto_host_rewrite")
        else:
            hops, mirrors = self._hops(group)
            rule = msgspec.structs.replace(
                base,
                kind=RouteKind.GRPC if grpc else RouteKind.HTTP,
                filters=(*steps, *filters.rewrite(spec, first.path, self._auto_host(spec, hops))),
                hops=hops,
                mirrors=mirrors,
                auth=None if bypassed else auth,
                timeouts=timeouts,
                retry=retry,
                persistence=sessions,
            )
            spec.ignore("redirect_response_code", "path_redirect", "prefix_redirect", "regex_redirect")
        for other in group:
            _settle(other.spec, spec)
        self._add(rule, first)

    def _add(self, rule: ImportedRule, first: Matched) -> None:
        if not rule.listeners:
            text = "no Host takes its hostname and labels, so that it was not used"
            first.spec.note(Category.SKIPPED, "no-host", text)
            return
        if first.precedence:
            text = "Mappings with a higher precedence were tried first; now the more specific match is"
            first.spec.note(Category.CHANGED, "order-changed", text, "precedence")
        self.rules.append(rule)

    def _hops(self, group: Sequence[Matched]) -> tuple[tuple[ImportedHop, ...], tuple[ImportedMirror, ...]]:
        """Returns the hops of all Mappings of a rule; those without a weight share what the others leave of 100."""
        real = [each.spec for each in group if not each.spec.boolean("shadow")]
        shares = _shares([spec.integer("weight") for spec in real])
        hops: list[ImportedHop] = []
        for spec, share in zip(real, shares, strict=True):
            if (hop := self._hop(spec, "service")) is not None:
                hops.append(msgspec.structs.replace(hop, weight=1 if len(real) == 1 else share))
        mirrors = (self._mirror(each.spec) for each in group if each.spec.boolean("shadow"))
        return tuple(hops), tuple(each for each in mirrors if each is not None)

    def _mirror(self, spec: FieldReader) -> ImportedMirror | None:
        weight, hop = spec.integer("weight"), self._hop(spec, "service")
        return ImportedMirror(hop, 100 if weight is None else max(1, min(weight, 100))) if hop else None

    def _hop(self, spec: FieldReader, key: str) -> ImportedHop | None:
        grpc = spec.boolean("grpc") or spec.value.get("proto") == "grpc"
        tls, secure = self._contexts.hop_tls(spec, key, grpc=grpc)
        place = self._services.find(spec, key, secure)
        if place is None:
            return None
        if spec.text("resolver") not in ("", "kubernetes-service", "kubernetes-endpoint", "endpoint"):
            text = "another resolver than those of Kubernetes; the service is taken to be one of Kubernetes"
            spec.note(Category.TODO, "resolver", text, "resolver")
        hop = ImportedHop(spec.source(key), place.backend, tls, h2c=grpc and (tls is None or tls.level is OldLevel.PLAINTEXT))
        return _outside(hop, place.backend, grpc) if isinstance(place.backend, HostBackend) else hop

    def _auto_host(self, spec: FieldReader, hops: Sequence[ImportedHop]) -> str:
        if not spec.boolean("auto_host_rewrite"):
            return ""
        hosts = {hop.backend.hostname for hop in hops if isinstance(hop.backend, HostBackend)}
        if len(hosts) == 1 and all(isinstance(hop.backend, HostBackend) for hop in hops):
            return hosts.pop()
        spec.note(Category.CANNOT, "auto-host-rewrite", "only a single host outside can be the new Host", "auto_host_rewrite")
        return ""

    # --- authorization and connections -------------------------------------------------------------------------------

    def _auth(self) -> Auth | None:
        """Returns the server that is asked about every request; of several, the first."""
        found: Auth | None = None
        for reader in self._objects.of("AuthService"):
            spec = reader.child("spec")
            auth = self._auth_server(spec)
            if found is not None or auth is None:
                text = "only one server can be asked about a request; this one is not asked any more"
                spec.note(Category.ACCESS_CONTROL, "auth-service", text, "auth_service")
            else:
                found = auth
        return found

    def _auth_server(self, spec: FieldReader) -> Auth | None:
        hop, body = self._hop(spec, "auth_service"), spec.child("include_body")
        grpc, path, size = spec.text("proto") == "grpc", spec.text("path_prefix"), body.integer("max_bytes") or 0
        sent, returned = (_header_names(spec, f"allowed_{whose}_headers") for whose in ("request", "authorization"))
        body.ignore("allow_partial")
        spec.ignore("protocol_version")
        for key in ("failure_mode_allow", "status_on_error", "timeout_ms", "add_auth_headers", "add_linkerd_headers"):
            spec.cannot(key, "a server that does not answer refuses the request, with 503")
        for key in ("circuit_breakers", "allow_request_body", "stats_name"):
            spec.cannot(key, "has no equivalent")
        return Auth(hop, grpc, path, sent, returned, max(0, min(size, 65535))) if hop else None

    def _stream(self, spec: FieldReader) -> None:
        for key in ("circuit_breakers", "idle_timeout_ms", "address"):
            spec.cannot(key, "has no equivalent")
        spec.ignore("cluster_tag", "stats_name", "enable_ipv4", "enable_ipv6", "grpc", "weight")
        port, host = spec.integer("port") or 0, spec.text("host").lower()
        hop = self._hop(spec, "service")
        if not is_port(port) or (host not in ("", "*") and not is_host(host)):
            spec.note(
                Category.CANNOT, "listener", "has no valid port and host, and is left out", "port", severity=NoteSeverity.HIGH
            )
            return
        listener = self._front.stream(spec.source(), port, "" if host == "*" else host)
        self.rules.append(
            ImportedRule(
                source=spec.source(),
                namespace=spec.namespace,
                route=spec.document.bare_name,
                listeners=(listener.key,),
                hostnames=(host,) if listener.hostname else (),
                kind=RouteKind.TLS if listener.hostname else RouteKind.TCP,
                hops=() if hop is None else (hop,),
            )
        )


def _outside(hop: ImportedHop, host: HostBackend, grpc: bool) -> ImportedHop:
    """Returns a hop to a host outside, as an XBackend can say it: ALPN is not among its settings."""
    tls = hop.tls
    if tls is None:
        return msgspec.structs.replace(hop, backend=msgspec.structs.replace(host, protocol="H2C")) if grpc else hop
    options = msgspec.structs.replace(tls.options, alpn=())
    tls = msgspec.structs.replace(tls, options=options, names=tls.names or (Name(host.hostname),))
    return msgspec.structs.replace(hop, tls=tls)


def _header_names(spec: FieldReader, key: str) -> tuple[str, ...]:
    return tuple(filter(TOKEN.fullmatch, spec.texts(key)))[:64]


def _settle(spec: FieldReader, first: FieldReader) -> None:
    """Lists what a Mapping has without an equivalent, and what only the first of several decides."""
    for key, text in CANNOT.items():
        spec.cannot(key, text)
    for key, text in HIGH.items():
        if key in spec:
            spec.note(Category.CANNOT, key, text, key, severity=NoteSeverity.HIGH)
    spec.access_control("labels", "requests with these labels were limited by a RateLimitService; they are not any more")
    spec.ignore(*IGNORED, "grpc", "resolver", "tls", "weight", "shadow", "host_redirect", "service", "auto_host_rewrite")
    if spec.document is first.document:
        return
    text = f"another Mapping matches the same: what {first.document.name} says holds for both"
    for key in sorted(_OF_FIRST & spec.value.keys()):
        if spec.value.get(key) != first.value.get(key):
            spec.note(Category.CHANGED, "first-mapping-decides", text, key)
        else:
            spec.ignore(key)


_OF_FIRST: Final = {
    *("add_request_headers", "add_response_headers", "remove_request_headers", "remove_response_headers", "cors", "rewrite"),
    *("regex_rewrite", "host_rewrite", "timeout_ms", "retry_policy", "load_balancer", "bypass_auth", "path_redirect"),
    *("prefix_redirect", "regex_redirect", "redirect_response_code"),
}


# --- matches ---------------------------------------------------------------------------------------------------------


def _matched(spec: FieldReader) -> Matched | None:
    """Returns what a Mapping matches; None if that cannot be written, because it would match more."""
    problems: list[str] = []
    hostname, path = _hostname(spec, problems), _path(spec)
    if not spec.text("prefix"):
        problems.append("no prefix")
    method = spec.text("method")
    verbs = methods(method, regex=spec.boolean("method_regex")) if method else ("",)
    if verbs is None:
        problems.append("a method that cannot be listed")
    headers = _values(spec, "headers", "regex_headers", problems)
    query = _values(spec, "query_parameters", "regex_query_parameters", problems)
    precedence = spec.integer("precedence") or 0
    if problems or verbs is None:
        text = f"the Mapping is left out, because it has {', and '.join(problems)}, for which there is no equivalent"
        spec.note(Category.CANNOT, "mapping-left-out", text, severity=NoteSeverity.HIGH)
        spec.ignore(*spec.value)
        return None
    matches = tuple(ImportedMatch(path, headers, query, verb) for verb in verbs)
    redirected = spec.document.path if spec.value.get("host_redirect") else ""
    return Matched(spec, hostname, path, matches, precedence, (hostname, matches, precedence, redirected))


def _path(spec: FieldReader) -> PathMatch:
    prefix, insensitive = spec.text("prefix"), spec.value.get("case_sensitive") is False
    regex, exact = spec.boolean("prefix_regex"), spec.boolean("prefix_exact")
    spec.boolean("case_sensitive", True)
    if regex:
        return PathMatch(PathKind.REGEX, f"(?i){prefix}" if insensitive else prefix)
    return exact_path(prefix, ignore_case=insensitive) if exact else string_prefix(prefix, ignore_case=insensitive)


def _hostname(spec: FieldReader, problems: list[str]) -> str:
    pattern = spec.boolean("host_regex")
    old, new = spec.text("host"), spec.text("hostname")
    if not new and old and pattern:
        problems.append("host_regex")
    found = (new or old or _authority(spec)).lower()
    if found in ("", "*"):
        return ""
    if not is_host(found) and (new or not pattern):
        problems.append(f"the hostname {found[:100]}")
    return found


def _authority(spec: FieldReader) -> str:
    headers = spec.value.get("headers")
    found = headers.get(":authority") if isinstance(headers, dict) else None
    return found if isinstance(found, str) else ""


def _values(spec: FieldReader, exact: str, regex: str, problems: list[str]) -> tuple[ImportedValueMatch, ...]:
    found: list[ImportedValueMatch] = []
    for key, kind in ((exact, "exact"), (regex, "regex")):
        values: dict[str, Any] = spec.mapping(key)
        for name, value in sorted(values.items()):
            if key == "headers" and name == ":authority":
                continue
            match = value_match(name, "present", "") if value is True else None
            if isinstance(value, str):
                match = value_match(name, kind, value)
            if match is None:
                problems.append(f"{key}: {name[:60]}")
            else:
                found.append(match)
    return tuple(found)


def _shares(weights: Sequence[int | None]) -> list[int]:
    """Returns the weights; those that are not given share what the others leave of 100."""
    left = max(0, 100 - sum(max(0, each) for each in weights if each is not None))
    return [left // weights.count(None) if each is None else max(0, each) for each in weights]
