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
"""Limit of rules per host: each is compared with each."""
_TYPES: Final = {PathKind.EXACT: routing.PathType.EXACT, PathKind.REGEX: routing.PathType.REGEX}
ROOT: Final = PathMatch(PathKind.SEGMENT, "/")


def order_notes(rules: Iterable[ImportedRule]) -> Iterator[Note]:
    """Yields a note for each rule that an overlapping later one overtakes."""
    by_host: dict[tuple[str, ...], list[ImportedRule]] = {}
    for rule in rules:
        by_host.setdefault(rule.hostnames, []).append(rule)
    for host, found in by_host.items():
        if len(found) > MOST:
            text = f"{', '.join(host) or 'all hosts'} has {len(found)} rules, too many to compare their order"
            yield Note(Category.CHANGED, "order-not-compared", text, found[0].source)
            continue
        for earlier, later in itertools.combinations(found, 2):
            if later.source != earlier.source and _overtakes(later, earlier):
                text = (
                    f"was tried before {later.source.object} {later.source.field}, which is more specific and comes first now"
                )
                yield Note(Category.CHANGED, "order-changed", text, earlier.source, severity=NoteSeverity.HIGH)


def contested(rules: Iterable[ImportedRule], origins: Mapping[Document, str]) -> Iterator[Note]:
    """Yields a note for each rule whose requests a rule of another system takes on the same listener. `origins`: the system of
    each object."""
    found: dict[tuple[object, ...], ImportedRule] = {}
    for rule in rules:
        system = origins.get(rule.source.document)
        ports = {(each.gateway, each.port, each.protocol) for each in rule.listeners}
        keys = itertools.product(ports, rule.hostnames or ("",), map(_requests, rule.matches or (ImportedMatch(),)))
        others = [found.setdefault(key, rule) for key in keys]
        if other := next((each for each in others if origins.get(each.source.document) != system), None):
            text = f"{other.source.object} of {origins.get(other.source.document)} was served at another address"
            text = f"{text}; on one Gateway only one of the two gets these requests"
            remedy = "Import each system on its own, with its own --gateway."
            yield Note(Category.TODO, "systems-conflict", text, rule.source, remedy=remedy)


def _requests(match: ImportedMatch) -> tuple[object, ...]:
    """Returns the same for matches that are written differently and match the same requests."""
    path = match.path or ROOT
    prefix = path.kind in (PathKind.SEGMENT, PathKind.STRING)
    return (prefix or path.kind, path.value.rstrip("/") if prefix else path.value, match.headers, match.query, match.method)


def _overtakes(later: ImportedRule, earlier: ImportedRule) -> bool:
    pairs = itertools.product(later.matches or (ImportedMatch(),), earlier.matches or (ImportedMatch(),))
    return any(_precedence(one) < _precedence(other) and _overlap(one, other) for one, other in pairs)


def _precedence(match: ImportedMatch) -> tuple[int, ...]:
    path = match.path or ROOT
    kind = _TYPES.get(path.kind, routing.PathType.PREFIX)
    values = [tuple(routing.ValueMatch(v.name, v.value, v.regex) for v in each) for each in (match.headers, match.query)]
    return routing.Match(path.value, kind, values[0], values[1], match.method).precedence


def _overlap(one: ImportedMatch, other: ImportedMatch) -> bool:
    """Returns whether some request may match both; it does not analyse regular expressions."""
    if one.method and other.method and one.method != other.method:
        return False
    if _exclude(one.headers, other.headers) or _exclude(one.query, other.query):
        return False
    return _paths_overlap(one.path or ROOT, other.path or ROOT)


def _exclude(some: tuple[ImportedValueMatch, ...], others: tuple[ImportedValueMatch, ...]) -> bool:
    wanted = {each.name.lower(): each.value for each in some if not each.regex}
    return any(not each.regex and wanted.get(each.name.lower(), each.value) != each.value for each in others)


def _paths_overlap(one: PathMatch, other: PathMatch) -> bool:
    if PathKind.REGEX in (one.kind, other.kind):
        return True
    if one.kind is PathKind.EXACT and other.kind is PathKind.EXACT:
        return one.value == other.value
    if PathKind.EXACT in (one.kind, other.kind):
        exact, prefix = (one, other) if one.kind is PathKind.EXACT else (other, one)
        return f"{exact.value.rstrip('/')}/".startswith(f"{prefix.value.rstrip('/')}/")
    shorter, longer = sorted((one.value.rstrip("/"), other.value.rstrip("/")), key=len)
    return f"{longer}/".startswith(f"{shorter}/")
