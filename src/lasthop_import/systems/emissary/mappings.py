"""Converts Mappings and TCPMappings into rules. Mappings with equal matches are one rule and share its requests by weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import msgspec

from lasthop.engine.resolve.routing.hostnames import covers
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    Auth,
    HostBackend,
    ImportedHop,
    ImportedListener,
    ImportedMirror,
    ImportedRule,
    Name,
    RouteKind,
)
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.order import order_notes
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary import filters
from lasthop_import.systems.emissary.backend_tls import Contexts
from lasthop_import.systems.emissary.groups import MappingGroup, MatchedMapping, grouped, read_match
from lasthop_import.systems.emissary.hosts import ROUTE, EmissaryHost
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.systems.emissary.listeners import HostListeners
from lasthop_import.systems.emissary.services import EmissaryServices
from lasthop_import.values import TOKEN, is_host, is_port

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
    "modules": "settings of modules by route have no equivalent",
    "priority": "requests have no priority",
}
HIGH: Final = {"envoy_override": "changes Envoy's configuration in any way, and is not carried over"}
IGNORED: Final = (
    *("bypass_error_response_overrides", "cluster_tag", "dns_type", "respect_dns_ttl", "docs", "stats_name", "use_websocket"),
    *("allow_upgrade", "v2BoolHeaders", "v2BoolQueryParameters", "v2ExplicitTLS", "v3StatsName", "v3health_checks"),
)
"""Fields whose loss has no effect: upgrades to WebSocket always work."""


class GroupAtHost(NamedTuple):
    """A group of Mappings at one of the Hosts that take it."""

    group: MappingGroup
    host: EmissaryHost
    name: str
    """The hostname of both; empty: any."""
    listeners: tuple[ImportedListener, ...]


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
        mappings = [matched for reader in self._objects.of("Mapping") if (matched := read_match(reader.child("spec")))]
        if mappings:
            self._front.assume(mappings[0].spec.source())
        by_group = list(filter(None, map(self._place, grouped(mappings, self._front.hosts))))
        placed = [*chain.from_iterable(by_group)]
        for places in by_group:
            self._rule(places, placed, auth)
        self._inputs.notes += _order_changed(placed)
        self._front.redirect([(place.host, place.name) for place in placed if place.group.first.for_acme])
        for reader in self._objects.of("TCPMapping"):
            self._stream(reader.child("spec"))

    # --- Hosts and listeners of a group ------------------------------------------------------------------------------

    def _place(self, group: MappingGroup) -> list[GroupAtHost]:
        mapping_host = group.first.mapping_host
        takers = self._front.takers(mapping_host, group.labels)
        places = []
        for host in takers:
            name = mapping_host.name_at(host)
            listeners = tuple(
                listener
                for listener, action in self._front.served(host)
                if action == ROUTE or group.first.for_acme
                if self._front.reaches(listener, name)
            )
            if listeners:
                places.append(GroupAtHost(group, host, name, listeners))
        if not places:
            for matched in group.members:
                self._not_served(matched, takers)
        return places

    def _not_served(self, matched: MatchedMapping, takers: Sequence[EmissaryHost]) -> None:
        """Lists a Mapping that no Host served, if the Hosts are in the input."""
        spec, mapping_host, front = matched.spec, matched.mapping_host, self._front
        spec.ignore(*spec.value)
        near = mapping_host.named and any(host.takes(mapping_host, host.selector or {}) for host in front.hosts)
        if takers:
            names = ", ".join(host.source.object for host in takers)
            text = f"{names} takes it, but does not route its requests, or another Host has them; it was not used"
            spec.note(Category.SKIPPED, "not-routed", text)
        elif not mapping_host.named and not front.unknown:
            text = "names no host, and no Host selects it by its labels, so that it was never served"
            spec.note(Category.SKIPPED, "no-hostname", text)
        elif near or front.complete:
            text = "no Host takes its hostname and labels, so that it was not used"
            spec.note(Category.SKIPPED, "no-host", text)
        else:
            text = "no Host in the input takes it, so that nothing leads to it"
            remedy = "Add its Host to the input, or pass --accept host-missing."
            spec.note(Category.TODO, "host-missing", text, remedy=remedy)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _rule(self, places: Sequence[GroupAtHost], placed: Sequence[GroupAtHost], auth: Auth | None) -> None:
        group = places[0].group
        first, spec = group.first, group.first.spec
        bypassed, grpc = spec.boolean("bypass_auth"), spec.boolean("grpc")
        steps = (*filters.headers(spec), *filters.cors_filter(spec))
        base = ImportedRule(spec.source(), spec.namespace, spec.document.bare_name, (), matches=first.matches)
        timeouts, retry, sessions = filters.timeouts(spec, self._services.timeout), filters.retry(spec), filters.sessions(spec)
        if group.redirect:
            rule = msgspec.structs.replace(base, filters=(*steps, filters.redirect_filter(spec, first.path)))
            spec.ignore("tls", "weight", "resolver", "grpc", "rewrite", "regex_rewrite", "host_rewrite", "auto_host_rewrite")
        else:
            hops, mirrors = self._hops(group)
            path, rewrite = filters.rewrite(spec, first.path, self._auto_host(spec, hops))
            rule = msgspec.structs.replace(
                base,
                kind=RouteKind.GRPC if grpc else RouteKind.HTTP,
                matches=tuple(msgspec.structs.replace(match, path=path) for match in first.matches),
                filters=(*steps, *rewrite),
                hops=hops,
                mirrors=mirrors,
                auth=None if bypassed else auth,
                timeouts=timeouts,
                retry=retry,
                persistence=sessions,
            )
            spec.ignore("redirect_response_code", "path_redirect", "prefix_redirect", "regex_redirect")
        for member in group.members:
            _settle(member.spec, spec)
        for hostnames, listeners in _attachments(places, placed).items():
            keys = tuple(dict.fromkeys(listener.key for listener in listeners))
            placed_rule = msgspec.structs.replace(rule, listeners=keys, hostnames=hostnames)
            self.rules += _one_prefix_each(placed_rule)

    def _hops(self, group: MappingGroup) -> tuple[tuple[ImportedHop, ...], tuple[ImportedMirror, ...]]:
        """Returns the hops of all Mappings of a rule. Mappings without a weight share the remainder of 100."""
        specs = [mapping.spec for mapping in group.mappings]
        shares = _shares(specs)
        hops: list[ImportedHop] = []
        for spec, share in zip(specs, shares, strict=True):
            if (hop := self._hop(spec, "service")) is not None:
                hops.append(msgspec.structs.replace(hop, weight=share))
        mirror = self._mirror(group.shadow.spec) if group.shadow else None
        return tuple(hops), (mirror,) if mirror else ()

    def _mirror(self, spec: FieldReader) -> ImportedMirror | None:
        weight, hop = spec.integer("weight"), self._hop(spec, "service")
        return ImportedMirror(hop, 100 if weight is None else max(1, min(weight, 100))) if hop else None

    def _hop(self, spec: FieldReader, key: str) -> ImportedHop | None:
        grpc = spec.boolean("grpc") or spec.value.get("proto") == "grpc"
        tls, secure = self._contexts.hop_tls(spec, key, grpc=grpc)
        target = self._services.find(spec, key, secure)
        if target is None:
            return None
        if spec.text("resolver") not in ("", "kubernetes-service", "kubernetes-endpoint", "endpoint"):
            text = "another resolver than those of Kubernetes; the service is taken to be one of Kubernetes"
            spec.note(Category.TODO, "resolver", text, "resolver")
        hop = ImportedHop(spec.source(key), target.backend, tls, h2c=grpc and (tls is None or tls.level is OldLevel.PLAINTEXT))
        return _outside(hop, target.backend, grpc) if isinstance(target.backend, HostBackend) else hop

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
        """Returns the server that authorizes every request, the first of several."""
        server: Auth | None = None
        for reader in self._objects.of("AuthService"):
            spec = reader.child("spec")
            auth = self._auth_server(spec)
            if server is not None or auth is None:
                text = "only one server can authorize a request; the new gateway does not use this one"
                spec.note(Category.ACCESS_CONTROL, "auth-service", text, "auth_service")
            else:
                server = auth
        return server

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
    """Returns a hop to an external host as an XBackend, which has no setting for ALPN."""
    tls = hop.tls
    if tls is None:
        return msgspec.structs.replace(hop, backend=msgspec.structs.replace(host, protocol="H2C")) if grpc else hop
    options = msgspec.structs.replace(tls.options, alpn=())
    tls = msgspec.structs.replace(tls, options=options, names=tls.names or (Name(host.hostname),))
    return msgspec.structs.replace(hop, tls=tls)


def _header_names(spec: FieldReader, key: str) -> tuple[str, ...]:
    return tuple(filter(TOKEN.fullmatch, spec.texts(key)))[:64]


def _settle(spec: FieldReader, first: FieldReader) -> None:
    """Lists settings of a Mapping without an equivalent, and settings that only the first Mapping of a group decides."""
    for key, text in CANNOT.items():
        spec.cannot(key, text)
    for key, text in HIGH.items():
        if key in spec:
            spec.note(Category.CANNOT, key, text, key, severity=NoteSeverity.HIGH)
    spec.access_control("auth_context_extensions", "the authorization server used this, and no longer receives it")
    spec.access_control("labels", "a RateLimitService limited requests with these labels; the new gateway does not")
    spec.ignore(*IGNORED, "grpc", "resolver", "tls", "weight", "shadow", "host_redirect", "service", "auto_host_rewrite")
    if spec.document is first.document:
        return
    spec.ignore(*_OF_FIRST)
    differing = [key for key in _OF_FIRST if spec.value.get(key) != first.value.get(key)]
    if differing and not spec.value.get("shadow"):
        text = f"{first.document.name} matches the same, and decides for both: {', '.join(differing)}"
        spec.note(Category.CHANGED, "first-mapping-decides", text)


_OF_FIRST: Final = (
    *("add_request_headers", "add_response_headers", "remove_request_headers", "remove_response_headers", "cors", "rewrite"),
    *("regex_rewrite", "host_rewrite", "auto_host_rewrite", "timeout_ms", "retry_policy", "load_balancer", "bypass_auth"),
    *("case_sensitive", "path_redirect", "prefix_redirect", "regex_redirect", "redirect_response_code"),
)


def _one_prefix_each(rule: ImportedRule) -> list[ImportedRule]:
    """Splits a rule that replaces a prefix into one rule for each match: Gateway API permits only one match with it."""
    modifiers = [
        part.path
        for route_filter in rule.filters
        for part in (route_filter.url_rewrite, route_filter.request_redirect)
        if part
    ]
    if not any(modifier and modifier.replace_prefix_match for modifier in modifiers):
        return [rule]
    return [msgspec.structs.replace(rule, matches=(match,)) for match in rule.matches]


# --- several Mappings ------------------------------------------------------------------------------------------------


def _attachments(
    places: Iterable[GroupAtHost], placed: Iterable[GroupAtHost]
) -> dict[tuple[str, ...], list[ImportedListener]]:
    """Returns the listeners of a group by the hostnames of its route.

    Emissary compares the Host's name first, then paths, and a Mapping's name last. Gateway API compares a route's hostnames
    before paths, and a request for a name of one route never reaches a route with a wider name. So a rule also lists every
    hostname of the Host's other Mappings that its own hostname covers.
    """
    names: dict[tuple[str, str], set[str]] = {}
    for place in placed:
        names.setdefault((place.host.namespace, place.host.name), set()).add(place.name)
    attachments: dict[tuple[str, ...], list[ImportedListener]] = {}
    exact: dict[str, None] = {}
    exact_listeners: list[ImportedListener] = []
    for place in places:
        other_names = names[place.host.namespace, place.host.name] - {place.name}
        inside = sorted(name for name in other_names if covers(place.name, name))
        if place.host.is_exact:
            exact |= dict.fromkeys((place.name, *inside))
            exact_listeners += place.listeners
        elif place.name:
            attachments.setdefault((place.name, *inside), []).extend(place.listeners)
        else:
            attachments.setdefault((), []).extend(place.listeners)
            if inside:
                attachments.setdefault(tuple(inside), []).extend(place.listeners)
    if exact:
        attachments.setdefault(tuple(exact), []).extend(exact_listeners)
    return attachments


def _order_changed(placed: Sequence[GroupAtHost]) -> list[Note]:
    """Returns a note for each Mapping that another Mapping of its Host and name overtakes."""
    by_name: dict[tuple[str, str, str], list[ImportedRule]] = {}
    for host, name in dict.fromkeys(((place.host.namespace, place.host.name), place.name) for place in placed):
        overlapping = [
            place for place in placed if (place.host.namespace, place.host.name) == host and covers(place.name, name)
        ]
        by_name[(*host, name)] = [
            ImportedRule(first.spec.source(), "", "", (), (name,), matches=first.matches)
            for first in (place.group.first for place in overlapping)
        ]
    return list(dict.fromkeys(note for rules in by_name.values() for note in order_notes(rules)))


def _shares(specs: Sequence[FieldReader]) -> list[int]:
    """Returns the weights in percent. Missing weights share the remainder of 100."""
    weights = [spec.integer("weight") for spec in specs]
    if len(weights) == 1:
        return [1]
    explicit = [max(0, weight) for weight in weights if weight is not None]
    total, missing = sum(explicit), weights.count(None)
    left = 100 - total
    if left < 0:
        text = f"the weights of these requests add up to {total}, and Emissary takes no more than 100: it used none of them"
        specs[0].note(Category.CANNOT, "weights", text, "weight", severity=NoteSeverity.HIGH)
    if left > 0 and not missing:
        text = f"{left} % of the requests went to the next Mapping that fits; now these Mappings share them by weight"
        specs[0].note(Category.CHANGED, "weights-scaled", text, "weight", severity=NoteSeverity.HIGH)
    shares = _divided(max(0, left), missing)
    return [next(shares) if weight is None else max(0, weight) for weight in weights]


def _divided(whole: int, parts: int) -> Iterator[int]:
    """Divides a number into equal parts. The last part includes the remainder."""
    share = round(whole / parts)
    yield from [share] * (parts - 1)
    yield whole - share * (parts - 1)
