"""Closes routes whose access control is lost: they answer 500 until a decision, or --accept, opens them.

A closed rule keeps its matches, so that no wider rule takes its requests, and has no backend: Gateway API answers 500 then.

A loss concerns the rules of its own object, or those below its field. The loss of another object (a policy, a middleware, a
setting of the controller) concerns the routes that lead there by name, else those of its namespace, else all.
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
        *(f"limit-req-{each}" for each in ("rate", "key", "zone-size", "delay", "no-delay", "burst", "dry-run")),
        *("limit-req-log-level", "limit-req-reject-code", "limit-req-scale"),
    )
)
"""Reasons of losses that limited the amount of requests, not the clients: they close nothing."""
INCLUDING: Final = frozenset(("includes", "route", "delegate", "targetRef", "targetRefs"))
"""Fields by which an object names routes that its restrictions hold for."""
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
    """All notes, those about losses that were accepted with a lower severity."""
    questions: tuple[Question, ...]


def access_loss(
    imported: Imported,
    notes: Sequence[Note],
    documents: Sequence[Document],
    decisions: Decisions,
    settings: ImportSettings,
) -> AccessLoss:
    """Closes the rules and copied routes that notes about lost access control concern."""
    lost = [each for each in notes if each.category is Category.ACCESS_CONTROL]
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
                each._replace(rules=each.rules & plain)
                for each in concerned
                if each.rules & plain or (not each.rules and each.document in plain_copies)
            ]
        shut = [each for each in concerned if each.document.name not in decisions.opened]
        if note.category in settings.accepted or note.reason in settings.accepted or (concerned and not shut):
            accepted.add(id(note))
            continue
        for each in shut if note.reason not in AMOUNTS else ():
            rules |= each.rules
            reasons.setdefault(each.document, []).append(note.reason)
    closed = sorted(reasons, key=lambda each: each.name)
    asked = [each for each in closed if {*reasons[each]} != {UNREADABLE}]
    questions = tuple(_question(each, reasons[each]) for each in asked)
    weighed = [
        msgspec.structs.replace(each, severity=NoteSeverity.WARNING) if id(each) in accepted else each for each in notes
    ]
    hops = frozenset(id(hop) for rule in imported.rules if id(rule) in rules for hop in rule.all_hops)
    notes = (*weighed, *(_note(each, reasons[each]) for each in asked))
    return AccessLoss(frozenset(rules), hops, frozenset(reasons), notes, questions)


def unreadable(problems: Iterable[Unparsable]) -> Iterator[Note]:
    """Yields the note about input that cannot be read, if it may restrict access. It closes all routes."""
    if any(each.hides for each in problems):
        text = "part of the input cannot be read; it may restrict access or verify backends, so all routes are closed"
        yield Note(Category.ACCESS_CONTROL, UNREADABLE, text, remedy="Correct it, or leave it out of the input.")


def _note(document: Document, reasons: Sequence[str]) -> Note:
    text = f"answers 500 until decisions.yaml opens it; restrictions that are not carried over: {_listed(reasons)}"
    remedy = f"Restrict access in another way, then open {document.name} in decisions.yaml."
    return Note(Category.ACCESS_CONTROL, CLOSED, text, SourceRef(document), remedy=remedy)


def _question(document: Document, reasons: Sequence[str]) -> Question:
    answer = ("open: true", 'reason: "what restricts access now"')
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
        {**{key: each[key] for key in ("name", "matches") if key in each}, **(NO_BACKEND if streams else {})} for each in rules
    ]
    metadata = {**route["metadata"], "annotations": {**route["metadata"].get("annotations", {}), **CLOSED_ANNOTATION}}
    return {**route, "metadata": metadata, "spec": {**route["spec"], "rules": kept}}


NO_BACKEND: Final = {"backendRefs": [{"name": "closed-todo", "port": 1}]}
"""The backend of a closed rule of a TLSRoute or TCPRoute, which must have one: it does not exist."""


class _Concerned(NamedTuple):
    document: Document
    rules: frozenset[int]


class _Finder:
    """Finds the routes that an object of the input is about."""

    def __init__(self, imported: Imported, documents: Sequence[Document]) -> None:
        self._rules: dict[Document, list[ImportedRule]] = {}
        for rule in imported.rules:
            if rule.all_hops:
                self._rules.setdefault(rule.source.document, []).append(rule)
        self._copied = {source.document for source, each in imported.objects if each["kind"].endswith("Route")}
        self._routes = [*self._rules, *(each for each in self._copied if each not in self._rules)]
        self._namers: dict[str, list[Document]] = {}
        for document in documents:
            for name in _names(_texts([document.spec, document.annotations, document.value.get("parameters")])):
                self._namers.setdefault(name, []).append(document)
        self._documents = documents

    def concerned(self, source: SourceRef | None) -> list[_Concerned]:
        if source is None or (document := source.document) is None or document.kind in INSTANCE_WIDE:
            return [self._whole(each) for each in self._routes]
        own = self._rules.get(document, ())
        narrow = [rule for rule in own if _related(rule.source.path, source.path)]
        if 0 < len(narrow) < len(own):
            return [_Concerned(document, frozenset(map(id, narrow)))]
        found = self._reached(document) or self._around(document)
        return [self._whole(each) for each in sorted(found, key=attrgetter("name"))]

    def _around(self, document: Document) -> Iterable[Document]:
        """Returns the routes that an object concerns if no route leads to it: those of its namespace, else all. A policy
        that targets routes alone concerns no others."""
        if _targets_routes_only(document):
            return ()
        return [each for each in self._routes if document.namespace in self._namespaces(each)] or self._routes

    def _namespaces(self, route: Document) -> set[str]:
        listeners = [key for rule in self._rules.get(route, ()) for key in rule.listeners]
        return {route.namespace, *(key.gateway.namespace for key in listeners if key.gateway)}

    def _whole(self, document: Document) -> _Concerned:
        return _Concerned(document, frozenset(map(id, self._rules.get(document, ()))))

    def _reached(self, start: Document) -> set[Document]:
        """Returns the routes that lead to an object by name, directly or by other objects, and those that it names itself."""
        routes = {*self._routes}
        seen, waiting, found = {start}, [start], set[Document]()
        while waiting:
            document = waiting.pop()
            if document in routes:
                found.add(document)
                below = [*self._named_by(document)]
            else:
                below = [*self._named_by(document), *self._naming(document)]
            for each in below:
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return found

    def _naming(self, document: Document) -> Iterator[Document]:
        name, namespace = document.bare_name, document.namespace
        for each in self._namers.get(name, ()):
            if each.namespace == namespace or each in self._namers.get(namespace, ()):
                yield each
        yield from self._namers.get(f"{namespace}-{name}", ())

    def _named_by(self, document: Document) -> Iterator[Document]:
        """Yields the objects whose requests an object restricts by name."""
        named = set(_included(document.spec))
        names = {name for name, _ in named}
        yield from (
            each
            for each in self._documents
            if named
            and each is not document
            and {(each.bare_name, ""), (each.bare_name, each.kind)} & named
            and (each.namespace == document.namespace or each.namespace in names)
        )


def _targets_routes_only(document: Document) -> bool:
    """Returns whether a policy names its targets, all of them routes. If none is in the input, the policy closes nothing."""
    spec = document.spec
    targets = [*mappings(spec.get("targetRefs")), *mappings([spec.get("targetRef")])]
    return bool(targets) and all(each.get("kind") in [*RouteKind] for each in targets)


def _related(rule: tuple[str | int, ...], field: tuple[str | int, ...]) -> bool:
    """Returns whether a field is about a rule: it is in the rule, or beside it in the same entry of a list."""
    around = field[:-1]
    return field[: len(rule)] == rule or (len(around) > 2 and rule[: len(around)] == around)


def _references(value: Any) -> Iterator[tuple[str, str]]:
    for each in value if isinstance(value, list) else [value]:
        match each:
            case {"kind": str(kind), "name": str(name)}:
                yield name, kind
                yield from ((namespace, "") for namespace in _texts(each.get("namespace")))
            case _:
                yield from ((name, "") for name in _names(_texts(each)))


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
    """Yields names that an object includes, each with its kind, which is empty if any kind may be meant."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from _references(below) if key in INCLUDING else _included(below)
    elif isinstance(value, list):
        for below in value:
            yield from _included(below)
