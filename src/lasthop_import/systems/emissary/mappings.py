"""Turns Mappings and TCPMappings into rules. Mappings that match the same are one rule, and share its requests by weight."""

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
from lasthop_import.systems.emissary.groups import MappingGroup, Matched, grouped, read_match
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
        found = [matched for each in self._objects.of("Mapping") if (matched := read_match(each.child("spec")))]
        if found:
            self._front.assume(found[0].spec.source())
        by_group = list(filter(None, map(self._place, grouped(found, self._front.hosts))))
        placed = [*chain.from_iterable(by_group)]
        for at in by_group:
            self._rule(at, placed, auth)
        self._inputs.notes += _order_changed(placed)
        self._front.redirect([(each.host, each.name) for each in placed if each.group.first.for_acme])
        for reader in self._objects.of("TCPMapping"):
            self._stream(reader.child("spec"))

    # --- where a group is served -------------------------------------------------------------------------------------

    def _place(self, group: MappingGroup) -> list[GroupAtHost]:
        mapping_host = group.first.mapping_host
        takers = self._front.takers(mapping_host, group.labels)
        found = []
        for host in takers:
            name = mapping_host.name_at(host)
            listeners = tuple(
                listener
                for listener, action in self._front.served(host)
                if action == ROUTE or group.first.for_acme
                if self._front.reaches(listener, name)
            )
            if listeners:
                found.append(GroupAtHost(group, host, name, listeners))
        if not found:
            for each in group.members:
                self._not_served(each, takers)
        return found

    def _not_served(self, matched: Matched, takers: Sequence[EmissaryHost]) -> None:
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

    def _rule(self, at: Sequence[GroupAtHost], placed: Sequence[GroupAtHost], auth: Auth | None) -> None:
        group = at[0].group
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
                matches=tuple(msgspec.structs.replace(each, path=path) for each in first.matches),
                filters=(*steps, *rewrite),
                hops=hops,
                mirrors=mirrors,
                auth=None if bypassed else auth,
                timeouts=timeouts,
                retry=retry,
                persistence=sessions,
            )
            spec.ignore("redirect_response_code", "path_redirect", "prefix_redirect", "regex_redirect")
        for other in group.members:
            _settle(other.spec, spec)
        for hostnames, listeners in _attachments(at, placed).items():
            keys = tuple(dict.fromkeys(each.key for each in listeners))
            placed_rule = msgspec.structs.replace(rule, listeners=keys, hostnames=hostnames)
            self.rules += _one_prefix_each(placed_rule)

    def _hops(self, group: MappingGroup) -> tuple[tuple[ImportedHop, ...], tuple[ImportedMirror, ...]]:
        """Returns the hops of all Mappings of a rule; those without a weight share what the others leave of 100."""
        specs = [each.spec for each in group.mappings]
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
        """Returns the server that authorizes every request, the first of several."""
        found: Auth | None = None
        for reader in self._objects.of("AuthService"):
            spec = reader.child("spec")
            auth = self._auth_server(spec)
            if found is not None or auth is None:
                text = "only one server can authorize a request; this one is not used any more"
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
    """Returns a hop to a host outside as an XBackend, which has no setting for ALPN."""
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
    spec.access_control("auth_context_extensions", "the authorization server decided by this, and does not get it any more")
    spec.access_control("labels", "requests with these labels were limited by a RateLimitService; they are not any more")
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
    """Returns a rule for each match, if a prefix is replaced: Gateway API allows that beside a single match only."""
    modifiers = [part.path for each in rule.filters for part in (each.url_rewrite, each.request_redirect) if part]
    if not any(each and each.replace_prefix_match for each in modifiers):
        return [rule]
    return [msgspec.structs.replace(rule, matches=(match,)) for match in rule.matches]


# --- several Mappings ------------------------------------------------------------------------------------------------


def _attachments(at: Iterable[GroupAtHost], placed: Iterable[GroupAtHost]) -> dict[tuple[str, ...], list[ImportedListener]]:
    """Returns the listeners of a group by the hostnames of its route.

    Emissary compares the Host's name first, then paths, and a Mapping's name last. Gateway API compares a route's hostnames
    before paths, and a request for a name that some route has never gets to a route with a wider one. So a rule names every
    hostname that another Mapping of its Host has and that is among its own.
    """
    names: dict[tuple[str, str], set[str]] = {}
    for each in placed:
        names.setdefault((each.host.namespace, each.host.name), set()).add(each.name)
    found: dict[tuple[str, ...], list[ImportedListener]] = {}
    exact: dict[str, None] = {}
    at_exact: list[ImportedListener] = []
    for each in at:
        others = names[each.host.namespace, each.host.name] - {each.name}
        inside = sorted(other for other in others if covers(each.name, other))
        if each.host.is_exact:
            exact |= dict.fromkeys((each.name, *inside))
            at_exact += each.listeners
        elif each.name:
            found.setdefault((each.name, *inside), []).extend(each.listeners)
        else:
            found.setdefault((), []).extend(each.listeners)
            if inside:
                found.setdefault(tuple(inside), []).extend(each.listeners)
    if exact:
        found.setdefault(tuple(exact), []).extend(at_exact)
    return found


def _order_changed(placed: Sequence[GroupAtHost]) -> list[Note]:
    """Returns a note for each Mapping that another one overtakes, in the order of any Host and name."""
    by_name: dict[tuple[str, str, str], list[ImportedRule]] = {}
    for host, wanted in dict.fromkeys(((each.host.namespace, each.host.name), each.name) for each in placed):
        here = [each for each in placed if (each.host.namespace, each.host.name) == host and covers(each.name, wanted)]
        by_name[(*host, wanted)] = [
            ImportedRule(first.spec.source(), "", "", (), (wanted,), matches=first.matches)
            for first in (each.group.first for each in here)
        ]
    return list(dict.fromkeys(note for rules in by_name.values() for note in order_notes(rules)))


def _shares(specs: Sequence[FieldReader]) -> list[int]:
    """Returns the weights, in percent; those that are not given share what the others leave of 100."""
    weights = [spec.integer("weight") for spec in specs]
    if len(weights) == 1:
        return [1]
    given = [max(0, each) for each in weights if each is not None]
    left, missing = 100 - sum(given), weights.count(None)
    if left < 0:
        text = (
            f"the weights of these requests add up to {sum(given)}, and Emissary takes no more than 100: it used none of them"
        )
        specs[0].note(Category.CANNOT, "weights", text, "weight", severity=NoteSeverity.HIGH)
    if left > 0 and not missing:
        text = f"{left} % of the requests went to the next Mapping that fits; now these Mappings share them by weight"
        specs[0].note(Category.CHANGED, "weights-scaled", text, "weight", severity=NoteSeverity.HIGH)
    shares = _divided(max(0, left), missing)
    return [next(shares) if each is None else max(0, each) for each in weights]


def _divided(whole: int, parts: int) -> Iterator[int]:
    """Divides a number into equal parts; the last one takes the remainder."""
    share = round(whole / parts)
    yield from [share] * (parts - 1)
    yield whole - share * (parts - 1)
