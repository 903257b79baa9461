"""Closes routes whose access control is lost: they answer 500 until a decision, or --accept, opens them.

A closed rule keeps its matches, so that no wider rule takes its requests. It has no backend, so Gateway API answers 500.

A loss in a route closes the rules of the route, or the rules below the lost field. A loss in another object (a policy, a
middleware, a setting of the controller) closes the routes that name the object, else the routes of its namespace, else all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.routes import HTTPRouteTimeouts
from lasthop_import.decisions import Decisions, Question
from lasthop_import.documents import Document, Unparsable, mappings
from lasthop_import.model import Imported, ImportedRule, RouteKind
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.objects import CLOSED as CLOSED_ANNOTATION

AMOUNTS: Final = frozenset(
    (
        *("limit-connections", "limit-rps", "limit-rpm", "limit-rate", "limit-rate-after", "limit-burst-multiplier"),
        *("limit-whitelist", "limit-allowlist", "rateLimit", "rateLimitPolicy", "globalRateLimitPolicy", "rate-limits"),
        *("inFlightReq", "inFlightConn", "labels", "dos", "app-protect-dos-resource", "rateLimitService"),
        *("rate-limit-connections", "rate-limit-connections.concurrent-tcp"),
        *("rate-limit-connections.rate-http", "rate-limit-connections.rate-tcp"),
        *(f"limit-req-{setting}" for setting in ("rate", "key", "zone-size", "delay", "no-delay", "burst", "dry-run")),
        *("limit-req-log-level", "limit-req-reject-code", "limit-req-scale"),
    )
)
"""Reasons of losses that limited the amount of requests, not the clients. They close no route."""
INCLUDING: Final = frozenset(("includes", "route", "delegate", "targetRef", "targetRefs"))
"""Fields by which an object names the routes that it restricts."""
INSTANCE_WIDE: Final = frozenset(
    (
        *("ConfigMap", "ContourConfiguration", "GlobalConfiguration", "Filter", "FilterPolicy"),
        *("AuthService", "AmbassadorAuthService", "Module", "AmbassadorModule"),
        *("Host", "AmbassadorHost", "TLSContext", "AmbassadorTLSContext"),
    )
)
"""Kinds whose settings apply to routes of any namespace, without naming them."""
CLOSED: Final = "closed"
UNREADABLE: Final = "unreadable-input"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class AccessLoss(NamedTuple):
    rules: frozenset[int]
    """Ids of the rules that are closed."""
    hops: frozenset[int]
    """Ids of their hops."""
    documents: frozenset[Document]
    """Copied routes that are closed."""
    notes: tuple[Note, ...]
    """All notes. Notes about accepted losses have a lower severity."""
    questions: tuple[Question, ...]


def access_loss(
    imported: Imported,
    notes: Sequence[Note],
    documents: Sequence[Document],
    decisions: Decisions,
    settings: ImportSettings,
) -> AccessLoss:
    """Closes the rules and copied routes that notes about lost access control apply to."""
    lost = [note for note in notes if note.category is Category.ACCESS_CONTROL]
    if not lost:
        return AccessLoss(frozenset(), frozenset(), frozenset(), tuple(notes), ())
    finder = _Finder(imported, documents)
    rules: set[int] = set()
    reasons: dict[Document, list[str]] = {}
    accepted: set[int] = set()
    plain = {id(rule) for rule in imported.rules if any(hop.tls is None for hop in rule.all_hops)}
    plain_copies = {hop.source.document for hop in imported.hops if hop.tls is None}
    for note in lost:
        concerned = finder.concerned(None if note.everywhere else note.source)
        if note.hides_tls:
            concerned = [
                route._replace(rules=route.rules & plain)
                for route in concerned
                if route.rules & plain or (not route.rules and route.document in plain_copies)
            ]
        shut = [route for route in concerned if route.document.name not in decisions.opened]
        if note.category in settings.accepted or note.reason in settings.accepted or (concerned and not shut):
            accepted.add(id(note))
            continue
        for route in shut if note.reason not in AMOUNTS else ():
            rules |= route.rules
            reasons.setdefault(route.document, []).append(note.reason)
    closed = sorted(reasons, key=lambda document: document.name)
    undecided = [document for document in closed if {*reasons[document]} != {UNREADABLE}]
    questions = tuple(_question(document, reasons[document]) for document in undecided)
    weighed = [
        msgspec.structs.replace(note, severity=NoteSeverity.WARNING) if id(note) in accepted else note for note in notes
    ]
    hops = frozenset(id(hop) for rule in imported.rules if id(rule) in rules for hop in rule.all_hops)
    notes = (*weighed, *(_note(document, reasons[document]) for document in undecided))
    return AccessLoss(frozenset(rules), hops, frozenset(reasons), notes, questions)


def unreadable(problems: Iterable[Unparsable]) -> Iterator[Note]:
    """Yields a note that closes all routes if unreadable input may restrict access."""
    if any(problem.hides for problem in problems):
        text = "part of the input cannot be read; it may restrict access or verify backends, so all routes are closed"
        yield Note(Category.ACCESS_CONTROL, UNREADABLE, text, remedy="Correct it, or leave it out of the input.")


def _note(document: Document, reasons: Sequence[str]) -> Note:
    text = f"answers 500 until decisions.yaml opens it; restrictions that are not carried over: {_listed(reasons)}"
    remedy = f"Restrict access in another way, then open {document.name} in decisions.yaml."
    return Note(Category.ACCESS_CONTROL, CLOSED, text, SourceRef(document), remedy=remedy)


def _question(document: Document, reasons: Sequence[str]) -> Question:
    answer = ("open: true", 'reason: "how access is restricted now"')
    return Question(document.name, CLOSED, f"restricted by {_listed(reasons)}", "", (answer,), "route")


def _listed(reasons: Iterable[str]) -> str:
    return ", ".join(sorted(set(reasons)))


def closed_rule(rule: ImportedRule) -> ImportedRule:
    """Returns a rule with its matches alone."""
    return msgspec.structs.replace(
        rule,
        filters=(),
        hops=(),
        mirrors=(),
        auth=None,
        timeouts=HTTPRouteTimeouts(),
        retry=None,
        persistence=None,
        closed=True,
    )


def closed_copy(route: Json) -> Json:
    rules = route["spec"].get("rules") or [{}]
    streams = route["kind"] in ("TLSRoute", "TCPRoute", "UDPRoute")
    kept = [
        {**{key: rule[key] for key in ("name", "matches") if key in rule}, **(NO_BACKEND if streams else {})} for rule in rules
    ]
    metadata = {**route["metadata"], "annotations": {**route["metadata"].get("annotations", {}), **CLOSED_ANNOTATION}}
    return {**route, "metadata": metadata, "spec": {**route["spec"], "rules": kept}}


NO_BACKEND: Final = {"backendRefs": [{"name": "closed-todo", "port": 1}]}
"""A backend that does not exist, for closed rules of a TLSRoute or TCPRoute: these must have a backend."""


class _Concerned(NamedTuple):
    document: Document
    rules: frozenset[int]


class _Finder:
    """Finds the routes that an object of the input applies to."""

    def __init__(self, imported: Imported, documents: Sequence[Document]) -> None:
        self._rules: dict[Document, list[ImportedRule]] = {}
        for rule in imported.rules:
            if rule.all_hops:
                self._rules.setdefault(rule.source.document, []).append(rule)
        self._copied = {source.document for source, copy in imported.objects if copy["kind"].endswith("Route")}
        self._routes = [*self._rules, *(route for route in self._copied if route not in self._rules)]
        self._namers: dict[str, list[Document]] = {}
        for document in documents:
            for name in _names(_texts([document.spec, document.annotations, document.value.get("parameters")])):
                self._namers.setdefault(name, []).append(document)
        self._documents = documents

    def concerned(self, source: SourceRef | None) -> list[_Concerned]:
        if source is None or (document := source.document) is None or document.kind in INSTANCE_WIDE:
            return [self._whole(route) for route in self._routes]
        rules = self._rules.get(document, ())
        narrow = [rule for rule in rules if _related(rule.source.path, source.path)]
        if 0 < len(narrow) < len(rules):
            return [_Concerned(document, frozenset(map(id, narrow)))]
        routes = self._reached(document) or self._around(document)
        return [self._whole(route) for route in sorted(routes, key=attrgetter("name"))]

    def _around(self, document: Document) -> Iterable[Document]:
        """Returns the routes that an object applies to if no route leads to it: the routes of its namespace, else all. A
        policy that targets only routes applies to no others."""
        if _targets_routes_only(document):
            return ()
        return [route for route in self._routes if document.namespace in self._namespaces(route)] or self._routes

    def _namespaces(self, route: Document) -> set[str]:
        listeners = [key for rule in self._rules.get(route, ()) for key in rule.listeners]
        return {route.namespace, *(key.gateway.namespace for key in listeners if key.gateway)}

    def _whole(self, document: Document) -> _Concerned:
        return _Concerned(document, frozenset(map(id, self._rules.get(document, ()))))

    def _reached(self, start: Document) -> set[Document]:
        """Returns the routes that name an object, directly or through other objects, and the routes that it names."""
        routes = {*self._routes}
        seen, waiting, reached = {start}, [start], set[Document]()
        while waiting:
            document = waiting.pop()
            if document in routes:
                reached.add(document)
                successors = [*self._named_by(document)]
            else:
                successors = [*self._named_by(document), *self._naming(document)]
            for successor in successors:
                if successor not in seen:
                    seen.add(successor)
                    waiting.append(successor)
        return reached

    def _naming(self, document: Document) -> Iterator[Document]:
        name, namespace = document.bare_name, document.namespace
        for namer in self._namers.get(name, ()):
            if namer.namespace == namespace or namer in self._namers.get(namespace, ()):
                yield namer
        yield from self._namers.get(f"{namespace}-{name}", ())

    def _named_by(self, document: Document) -> Iterator[Document]:
        """Yields the objects whose requests an object restricts by name."""
        named = set(_included(document.spec))
        names = {name for name, _ in named}
        yield from (
            candidate
            for candidate in self._documents
            if named
            and candidate is not document
            and {(candidate.bare_name, ""), (candidate.bare_name, candidate.kind)} & named
            and (candidate.namespace == document.namespace or candidate.namespace in names)
        )


def _targets_routes_only(document: Document) -> bool:
    """Returns whether a policy names its targets, all of them routes. If none is in the input, the policy closes nothing."""
    spec = document.spec
    targets = [*mappings(spec.get("targetRefs")), *mappings([spec.get("targetRef")])]
    return bool(targets) and all(target.get("kind") in [*RouteKind] for target in targets)


def _related(rule: tuple[str | int, ...], field: tuple[str | int, ...]) -> bool:
    """Returns whether a field applies to a rule: it is in the rule, or beside it in the same entry of a list."""
    around = field[:-1]
    return field[: len(rule)] == rule or (len(around) > 2 and rule[: len(around)] == around)


def _references(value: Any) -> Iterator[tuple[str, str]]:
    for reference in value if isinstance(value, list) else [value]:
        match reference:
            case {"kind": str(kind), "name": str(name)}:
                yield name, kind
                yield from ((namespace, "") for namespace in _texts(reference.get("namespace")))
            case _:
                yield from ((name, "") for name in _names(_texts(reference)))


def _names(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _NAME.findall(text)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)


def _included(value: Any) -> Iterator[tuple[str, str]]:
    """Yields the names that an object includes with their kinds. An empty kind stands for any kind."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _references(below) if key in INCLUDING else _included(below)
    elif isinstance(value, list):
        for below in value:
            yield from _included(below)
