"""Finds rules whose order changes: Gateway API tries the more specific match first, other gateways the first one written.

Importers of systems with list order or priorities pass the rules of a host in the old order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from lasthop.engine.plan import routing
from lasthop_import.documents import Document
from lasthop_import.model import ImportedMatch, ImportedRule, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.notes import Category, Note, NoteSeverity

MOST: Final = 300
"""Maximum rules per host: all pairs are compared."""
_TYPES: Final = {PathKind.EXACT: routing.PathType.EXACT, PathKind.REGEX: routing.PathType.REGEX}
ROOT: Final = PathMatch(PathKind.SEGMENT, "/")


def order_notes(rules: Iterable[ImportedRule]) -> Iterator[Note]:
    """Yields a note for each rule that a later, overlapping rule overtakes."""
    by_host: dict[tuple[str, ...], list[ImportedRule]] = {}
    for rule in rules:
        by_host.setdefault(rule.hostnames, []).append(rule)
    for host, host_rules in by_host.items():
        if len(host_rules) > MOST:
            text = f"{', '.join(host) or 'all hosts'} has {len(host_rules)} rules, too many to compare their order"
            yield Note(Category.CHANGED, "order-not-compared", text, host_rules[0].source)
            continue
        for earlier, later in itertools.combinations(host_rules, 2):
            if later.source != earlier.source and _overtakes(later, earlier):
                text = (
                    f"was tried before {later.source.object} {later.source.field}, which is more specific and comes first now"
                )
                yield Note(Category.CHANGED, "order-changed", text, earlier.source, severity=NoteSeverity.HIGH)


def contested(rules: Iterable[ImportedRule], origins: Mapping[Document, str]) -> Iterator[Note]:
    """Yields a note for each rule whose requests a rule of another system takes on the same listener. `origins`: the system of
    each object."""
    by_request: dict[tuple[object, ...], ImportedRule] = {}
    for rule in rules:
        system = origins.get(rule.source.document)
        ports = {(listener.gateway, listener.port, listener.protocol) for listener in rule.listeners}
        keys = itertools.product(ports, rule.hostnames or ("",), map(_requests, rule.matches or (ImportedMatch(),)))
        earlier = [by_request.setdefault(key, rule) for key in keys]
        if rival := next((candidate for candidate in earlier if origins.get(candidate.source.document) != system), None):
            text = f"{rival.source.object} of {origins.get(rival.source.document)} was served at another address"
            text = f"{text}; on one Gateway only one of the two gets these requests"
            remedy = "Import each system on its own, with its own --gateway."
            yield Note(Category.TODO, "systems-conflict", text, rule.source, remedy=remedy)


def _requests(match: ImportedMatch) -> tuple[object, ...]:
    """Returns a key that is equal for matches of the same requests, however they are written."""
    path = match.path or ROOT
    prefix = path.kind in (PathKind.SEGMENT, PathKind.STRING)
    return (prefix or path.kind, path.value.rstrip("/") if prefix else path.value, match.headers, match.query, match.method)


def _overtakes(later: ImportedRule, earlier: ImportedRule) -> bool:
    pairs = itertools.product(later.matches or (ImportedMatch(),), earlier.matches or (ImportedMatch(),))
    return any(_precedence(first) < _precedence(second) and _overlap(first, second) for first, second in pairs)


def _precedence(match: ImportedMatch) -> tuple[int, ...]:
    path = match.path or ROOT
    kind = _TYPES.get(path.kind, routing.PathType.PREFIX)
    values = [tuple(routing.ValueMatch(v.name, v.value, v.regex) for v in matches) for matches in (match.headers, match.query)]
    return routing.Match(path.value, kind, values[0], values[1], match.method).precedence


def _overlap(first: ImportedMatch, second: ImportedMatch) -> bool:
    """Returns whether some request may match both; it does not analyse regular expressions."""
    if first.method and second.method and first.method != second.method:
        return False
    if _exclude(first.headers, second.headers) or _exclude(first.query, second.query):
        return False
    return _paths_overlap(first.path or ROOT, second.path or ROOT)


def _exclude(first: tuple[ImportedValueMatch, ...], second: tuple[ImportedValueMatch, ...]) -> bool:
    values = {match.name.lower(): match.value for match in first if not match.regex}
    return any(not match.regex and values.get(match.name.lower(), match.value) != match.value for match in second)


def _paths_overlap(first: PathMatch, second: PathMatch) -> bool:
    if PathKind.REGEX in (first.kind, second.kind):
        return True
    if first.kind is PathKind.EXACT and second.kind is PathKind.EXACT:
        return first.value == second.value
    if PathKind.EXACT in (first.kind, second.kind):
        exact, prefix = (first, second) if first.kind is PathKind.EXACT else (second, first)
        return f"{exact.value.rstrip('/')}/".startswith(f"{prefix.value.rstrip('/')}/")
    shorter, longer = sorted((first.value.rstrip("/"), second.value.rstrip("/")), key=len)
    return f"{longer}/".startswith(f"{shorter}/")
