"""Writes rules as HTTPRoutes, GRPCRoutes, TLSRoutes, TCPRoutes and UDPRoutes, within the limits of each kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import plain
from lasthop.engine.plan.limits import Limits
from lasthop.engine.resolve.routing.hostnames import intersection
from lasthop.engine.resolve.routing.regexes import Regexes
from lasthop_import.model import (
    Auth,
    ImportedHop,
    ImportedMatch,
    ImportedRule,
    ImportedValueMatch,
    ListenerKey,
    PathKind,
    PathMatch,
    RouteKind,
)
from lasthop_import.names import slug
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import HopPort, RuleHop, h2c_notes
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.access import NO_BACKEND
from lasthop_import.writer.objects import ObjectWriter, OutputFile
from lasthop_import.writer.stage import Grant, StageOutput, WriterContext

API: Final = "gateway.networking.k8s.io/v1"
MAX_RULES, MAX_MATCHES, MAX_ALL_MATCHES, MAX_HOSTNAMES, MAX_BACKENDS = 16, 64, 128, 16, 16
GRPC_FILTERS: Final = ("RequestHeaderModifier", "ResponseHeaderModifier")
_METHOD: Final = re.compile(r"/(?P<service>[A-Za-z_][A-Za-z0-9_.]*)(?P<slash>/(?:(?P<method>[A-Za-z_][A-Za-z0-9_]*)/?)?)?")
RULE_REFUSED: Final = "rule-refused"
STREAMS: Final = (RouteKind.TLS, RouteKind.TCP, RouteKind.UDP)


class RouteAttachment(NamedTuple):
    """The parent of a route."""

    reference: Json
    hostname: str = ""


Parents = Mapping[ListenerKey, RouteAttachment]


class RoutesWritten(StageOutput, frozen=True, kw_only=True):
    refused: tuple[ImportedRule, ...]
    """Rules that cannot be written."""


def write_routes(
    context: WriterContext, rules: Sequence[ImportedRule], rule_hops: Sequence[RuleHop], parents: Parents
) -> RoutesWritten:
    """Writes the routes of all rules; `rule_hops`: their hops with ports."""
    objects = context.objects()
    ports = {id(rule_hop.hop): rule_hop.port for rule_hop in rule_hops if rule_hop.port is not None}
    writer = RouteWriter(objects, ports, context.settings.experimental)
    writer.write(rules, parents)
    return RoutesWritten(
        objects=tuple(objects.objects),
        notes=tuple(writer.notes),
        grants=frozenset(writer.grants),
        refused=tuple(writer.refused),
    )


class RouteWriter:
    def __init__(self, objects: ObjectWriter, ports: Mapping[int, HopPort], experimental: bool) -> None:
        """`ports`: the port of each hop, by the id of the hop."""
        self._objects = objects
        self._ports = ports
        self._experimental = experimental
        self.notes: list[Note] = []
        self.grants: set[Grant] = set()
        self.refused: list[ImportedRule] = []

    def write(self, rules: Sequence[ImportedRule], parents: Parents) -> None:
        groups: dict[tuple[Any, ...], list[ImportedRule]] = {}
        for rule in map(self._kind_that_fits, filter(self._is_sound, rules)):
            listeners = tuple(sorted(set(rule.listeners), key=str))
            groups.setdefault((rule.kind, rule.namespace, rule.route, rule.hostnames, listeners), []).append(rule)
        for (kind, namespace, name, hostnames, listeners), group in groups.items():
            for chunk in _chunks(hostnames, MAX_HOSTNAMES) if hostnames else [()]:
                references = _references(listeners, chunk, parents, namespace)
                self._route(kind, namespace, name, chunk, references, group)

    def _is_sound(self, rule: ImportedRule) -> bool:
        """Returns whether a rule can be written and Envoy can compile its regular expressions. Lists a rule that is left
        out."""
        problem = rule.refused or next(filter(None, (Regexes(Limits()).problem(pattern) for pattern in _patterns(rule))), "")
        if problem:
            text = f"the rule is left out: {problem}"
            self.notes.append(Note(Category.CANNOT, RULE_REFUSED, text, rule.source, severity=NoteSeverity.HIGH))
            self.refused.append(rule)
        return not problem

    def _kind_that_fits(self, rule: ImportedRule) -> ImportedRule:
        """Returns a gRPC rule as a rule of an HTTPRoute if a GRPCRoute cannot express it."""
        if rule.kind is not RouteKind.GRPC:
            return rule
        if _fits_grpc(rule):
            self.notes += _grpc_notes(rule)
            return rule
        text = "matches or filters that a GRPCRoute cannot have; an HTTPRoute is written instead"
        self.notes.append(Note(Category.CHANGED, "grpc-as-http", text, rule.source))
        self.notes += [note for hop in rule.hops for note in h2c_notes(hop, self._ports.get(id(hop)))]
        return msgspec.structs.replace(rule, kind=RouteKind.HTTP)

    def _route(
        self,
        kind: RouteKind,
        namespace: str,
        name: str,
        hostnames: Sequence[str],
        parents: list[Json],
        rules: list[ImportedRule],
    ) -> None:
        written = [(rule, written_rule) for rule in rules for written_rule in self._rules(kind, rule)]
        chunks = list(_packed(written, 1 if kind in STREAMS else MAX_RULES))
        # Of equally specific matches the older route wins, then the first name, so names must sort in the order of rules.
        width = len(str(len(chunks)))
        base = self._base_name(kind, namespace, name, hostnames)
        for number, chunk in enumerate(chunks, 1):
            free = base
            if len(chunks) > 1:
                free = self._objects.free_name(kind, namespace, f"{base}-{number:0{width}}")
            named = {"hostnames": list(hostnames)} if hostnames else {}
            spec: Json = {"parentRefs": parents, **named, "rules": [written_rule for _, written_rule in chunk]}
            document = {
                "apiVersion": API,
                "kind": str(kind),
                "metadata": {"name": free, "namespace": namespace},
                "spec": spec,
            }
            chunk_rules = tuple(rule for rule, _ in chunk)
            self._objects.add(OutputFile.ROUTES, document, tuple(rule.source for rule in chunk_rules), rules=chunk_rules)

    def _base_name(self, kind: RouteKind, namespace: str, name: str, hostnames: Sequence[str]) -> str:
        """Returns the rule's own name for a route. Adds the hostname if the name is taken."""
        free = self._objects.free_name(kind, namespace, name)
        if free == name or not hostnames:
            return free
        return self._objects.free_name(kind, namespace, f"{name}-{slug(hostnames[0])}")

    # --- rules -------------------------------------------------------------------------------------------------------

    def _rules(self, kind: RouteKind, rule: ImportedRule) -> Iterator[Json]:
        written: Json = {"name": rule.name} if rule.name else {}
        if kind in STREAMS:
            yield {**written, **(NO_BACKEND if rule.closed else self._backends(rule, weights_only=True))}
            return
        filters = [_filter(route_filter) for route_filter in rule.filters] + list(self._hop_filters(rule))
        fields: Json = {"filters": filters} if filters else {}
        fields |= {**self._backends(rule), **self._times(kind, rule), **self._sessions(rule)}
        matches = tuple(_match(kind, match, rule, self.notes) for match in rule.matches)
        # A match without conditions matches everything, so the others have no effect.
        for number, chunk in enumerate(_chunks(matches, MAX_MATCHES) if matches and all(matches) else [()]):
            named = {"name": f"{rule.name}-{number + 1}"} if rule.name and number else written
            yield {**named, **({"matches": list(chunk)} if chunk else {}), **fields}

    def _times(self, kind: RouteKind, rule: ImportedRule) -> Json:
        """Returns timeouts and retries, which a GRPCRoute does not have."""
        if kind is not RouteKind.HTTP:
            if rule.retry is not None:
                text = "nothing was retried; a call that could not be sent is tried at one other endpoint now"
                note = Note(Category.CHANGED, "grpc-connects-retried", text, rule.source, severity=NoteSeverity.INFO)
                self.notes.append(note)
            return {}
        timeouts = plain(rule.timeouts)
        written: Json = {"timeouts": timeouts} if timeouts else {}
        if rule.retry is not None and self._allowed("retry", rule.source):
            written["retry"] = {"attempts": rule.retry.attempts, **plain(rule.retry)}
        return written

    def _sessions(self, rule: ImportedRule) -> Json:
        if rule.persistence is None:
            return {}
        if len(rule.hops) > 1:
            text = "sessions can be kept with one backend only, and the rule has several; the new gateway does not keep them"
            self.notes.append(Note(Category.CANNOT, "affinity-dropped", text, rule.source))
            return {}
        if not self._allowed("sessionPersistence", rule.source):
            return {}
        return {"sessionPersistence": {"type": rule.persistence.type, **plain(rule.persistence)}}

    def _allowed(self, field: str, source: SourceRef) -> bool:
        if not self._experimental:
            text = f"{field} needs the experimental channel of Gateway API"
            self.notes.append(Note(Category.CANNOT, "needs-experimental", text, source, remedy="Leave out --standard."))
        return self._experimental

    def _backends(self, rule: ImportedRule, weights_only: bool = False) -> Json:
        refs = []
        for hop in rule.hops:
            port = self._ports.get(id(hop))
            if port is not None:
                ref = self._reference(hop, port, rule)
                if any(other_hop.weight != 1 for other_hop in rule.hops):
                    ref["weight"] = min(hop.weight, 1_000_000)
                if hop.filters and not weights_only:
                    ref["filters"] = [_filter(route_filter) for route_filter in hop.filters]
                refs.append(ref)
        if len(refs) > MAX_BACKENDS:
            text = f"{len(refs)} backends are more than the {MAX_BACKENDS} of a rule; those after that are left out"
            self.notes.append(Note(Category.CANNOT, "too-many-backends", text, rule.source, severity=NoteSeverity.HIGH))
        return {"backendRefs": refs[:MAX_BACKENDS]} if refs else {}

    def _reference(self, hop: ImportedHop, port: HopPort, rule: ImportedRule) -> Json:
        ref: Json = {"name": port.name}
        if port.kind == "XBackend":
            ref = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", **ref}
        if port.namespace != rule.namespace:
            ref["namespace"] = port.namespace
            if hop.permitted:
                self.grants.add((str(rule.kind), rule.namespace, port.kind, port.namespace, port.name))
            else:
                text = f"refers to {port.kind} {port.namespace}/{port.name}, for which the old gateway had no permission"
                remedy = "If it is right, write a ReferenceGrant in that namespace."
                self.notes.append(Note(Category.TODO, "reference-not-permitted", text, hop.source, remedy=remedy))
        if port.kind != "XBackend":
            ref["port"] = port.number
        return ref

    def _hop_filters(self, rule: ImportedRule) -> Iterator[Json]:
        for mirror in rule.mirrors:
            if port := self._ports.get(id(mirror.hop)):
                percent = {"percent": mirror.percent} if mirror.percent != 100 else {}
                reference = self._reference(mirror.hop, port, rule)
                yield {"type": "RequestMirror", "requestMirror": {"backendRef": reference, **percent}}
        if rule.auth is None:
            return
        port = self._ports.get(id(rule.auth.hop))
        if port is not None and self._experimental:
            external = _external_auth(rule.auth, self._reference(rule.auth.hop, port, rule))
            yield {"type": "ExternalAuth", "externalAuth": external}


def auth_notes(rule_hops: Sequence[RuleHop], settings: ImportSettings) -> Iterator[Note]:
    """Yields a note for each authorization server that no written object can refer to."""
    for rule_hop in rule_hops:
        if rule_hop.role == "auth" and (rule_hop.port is None or not settings.experimental):
            text = "the server that authorizes requests cannot be referred to, so nothing would be authorized"
            yield Note(
                Category.ACCESS_CONTROL, "external-auth", text, rule_hop.rule.source if rule_hop.rule else rule_hop.source
            )


def _external_auth(auth: Auth, reference: Json) -> Json:
    settings: Json = {"allowedHeaders": list(auth.headers)} if auth.headers else {}
    if auth.path:
        settings["path"] = auth.path
    if auth.response_headers:
        settings["allowedResponseHeaders"] = list(auth.response_headers)
    protocol = "GRPC" if auth.grpc else "HTTP"
    external: Json = {"protocol": protocol, "backendRef": reference, protocol.lower(): settings}
    return {**external, "forwardBody": {"maxSize": auth.body_bytes}} if auth.body_bytes else external


def _filter(value: Any) -> Json:
    """Returns a filter as a user writes it. A redirect always has a code, because the default, 302, is not the usual code."""
    written: Json = plain(value)
    if "requestRedirect" in written:
        written["requestRedirect"].setdefault("statusCode", 302)
    return written


def _packed(rules: Sequence[tuple[ImportedRule, Json]], most: int) -> Iterator[list[tuple[ImportedRule, Json]]]:
    """Splits rules into routes within the limits of rules and matches per route."""
    chunk: list[tuple[ImportedRule, Json]] = []
    matches = 0
    for rule, written in rules:
        count = max(1, len(written.get("matches", ())))
        if chunk and (len(chunk) == most or matches + count > MAX_ALL_MATCHES):
            yield chunk
            chunk, matches = [], 0
        chunk.append((rule, written))
        matches += count
    if chunk:
        yield chunk


def _chunks(values: tuple[Any, ...], size: int) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _references(listeners: Sequence[ListenerKey], hostnames: Sequence[str], parents: Parents, namespace: str) -> list[Json]:
    """Returns the parentRefs: each listener that these hostnames can reach, once."""
    references: list[Json] = []
    for key in listeners:
        parent = parents[key]
        if hostnames and parent.hostname and not any(intersection(parent.hostname, hostname) for hostname in hostnames):
            continue
        reference = {k: v for k, v in parent.reference.items() if k != "namespace" or v != namespace}
        if reference not in references:
            references.append(reference)
    return references


# --- matches ---------------------------------------------------------------------------------------------------------


def _match(kind: RouteKind, match: ImportedMatch, rule: ImportedRule, notes: list[Note]) -> Json | None:
    if kind is RouteKind.GRPC:
        return _grpc_match(match)
    written: Json = {}
    if match.path is not None:
        written["path"] = _path(match.path, rule, notes)
    if match.headers:
        written["headers"] = [_value(header) for header in match.headers]
    if match.query:
        written["queryParams"] = [_value(parameter) for parameter in match.query]
    if match.method:
        written["method"] = match.method
    return written


def _path(path: PathMatch, rule: ImportedRule, notes: list[Note]) -> Json:
    match path.kind:
        case PathKind.EXACT:
            return {"type": "Exact", "value": path.value}
        case PathKind.REGEX:
            return {"type": "RegularExpression", "value": path.value}
        case PathKind.STRING if path.value.endswith("/") and path.value != "/":
            text = f"the prefix {path.value} did not match {path.value.rstrip('/')} itself, and does now"
            notes.append(Note(Category.CHANGED, "prefix-widened", text, rule.source))
        case PathKind.STRING if path.value != "/":
            text = f"the prefix {path.value} also matched {path.value}bar; it matches whole segments now"
            notes.append(Note(Category.CHANGED, "prefix-narrowed", text, rule.source))
        case _:
            pass
    return {"type": "PathPrefix", "value": path.value}


def _value(match: ImportedValueMatch) -> Json:
    return {"type": "RegularExpression" if match.regex else "Exact", "name": match.name, "value": match.value}


def _fits_grpc(rule: ImportedRule) -> bool:
    """Returns whether a GRPCRoute can express the rule."""
    if (rule.retry is not None and rule.retry.attempts > 0) or rule.auth is not None or plain(rule.timeouts):
        return False
    fits = all(route_filter.type in GRPC_FILTERS for route_filter in rule.filters)
    return fits and all(_grpc_match(match) is not None for match in rule.matches)


def _grpc_match(match: ImportedMatch) -> Json | None:
    """Returns a match of a GRPCRoute; None if a GRPCRoute cannot express it."""
    if match.query or match.method:
        return None
    written: Json = {"headers": [_value(header) for header in match.headers]} if match.headers else {}
    path = match.path
    if path is None or (path.value == "/" and path.kind is not PathKind.EXACT):
        return written
    method = _grpc_method(path)
    return {"method": method, **written} if method else None


def _grpc_method(path: PathMatch) -> Json | None:
    """Returns the service, and the method, of a path. A character prefix without a slash after the service counts as a whole
    name only if it has a package, because `/api` also matched the service `api.v1.Users`."""
    match = _METHOD.fullmatch(path.value)
    if match is None or path.kind is PathKind.REGEX or (path.kind is PathKind.EXACT and not match["method"]):
        return None
    if path.kind is PathKind.STRING and not match["slash"] and "." not in match["service"]:
        return None
    return {"type": "Exact", "service": match["service"], **({"method": match["method"]} if match["method"] else {})}


def _grpc_notes(rule: ImportedRule) -> Iterator[Note]:
    """Yields a note for each character prefix that becomes the whole name of a service or method."""
    for match in rule.matches:
        path = match.path
        if path is not None and path.kind is PathKind.STRING and not path.value.endswith("/"):
            text = (
                f"the prefix {path.value} also matched {path.value}Bar; it is the whole name of a gRPC service or method now"
            )
            yield Note(Category.CHANGED, "prefix-narrowed", text, rule.source)


def _patterns(rule: ImportedRule) -> Iterator[str]:
    for match in rule.matches:
        if match.path and match.path.kind is PathKind.REGEX:
            yield match.path.value
        yield from (value_match.value for value_match in (*match.headers, *match.query) if value_match.regex)
