"""Translates conditions. Conditions of includes and routes add up; a condition without an equivalent leaves its route out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from lasthop_import.model import ImportedMatch, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.reader import FieldReader
from lasthop_import.values import value_match

_KINDS: Final = ("exact", "prefix", "suffix", "contains", "regex")
_NEGATIONS: Final = ("notpresent", "notcontains", "notexact", "treatMissingAsEmpty")


class RouteConditions(NamedTuple):
    prefix: str = ""
    kind: PathKind = PathKind.STRING
    headers: tuple[ImportedValueMatch, ...] = ()
    query: tuple[ImportedValueMatch, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def match(self) -> ImportedMatch:
        return ImportedMatch(PathMatch(self.kind, self.prefix or "/"), self.headers, self.query)


def joined(outer: RouteConditions, entries: Sequence[FieldReader]) -> RouteConditions:
    """Returns the conditions of an include or route below outer ones. Concatenates their prefixes."""
    prefix, kind = outer.prefix, outer.kind
    headers, query, problems = list(outer.headers), list(outer.query), list(outer.problems)
    for entry in entries:
        for key, path_kind in (("prefix", PathKind.STRING), ("exact", PathKind.EXACT), ("regex", PathKind.REGEX)):
            if value := entry.text(key):
                before = re.escape(prefix) if path_kind is PathKind.REGEX else prefix
                prefix, kind = (
                    re.sub("/+", "/", f"{before}{value}") if path_kind is not PathKind.REGEX else f"{before}{value}",
                    path_kind,
                )
        for key, collected in (("header", headers), ("queryParameter", query)):
            if key in entry:
                match = _value(entry.child(key))
                if match is None:
                    problems.append(f"a condition of a {key}")
                else:
                    collected.append(match)
    return RouteConditions(prefix, kind, tuple(headers), tuple(query), tuple(problems))


def _value(reader: FieldReader) -> ImportedValueMatch | None:
    """Returns the match of a header or query parameter; None for negations, which have no equivalent."""
    name, insensitive, present = reader.text("name"), reader.boolean("ignoreCase"), reader.boolean("present")
    kind = next((key for key in _KINDS if key in reader), "present" if present else "")
    value = reader.text(kind) if kind in _KINDS else ""
    negated = any(key in reader for key in _NEGATIONS)
    reader.ignore(*_NEGATIONS, *_KINDS)
    match = value_match(name, kind, value) if kind and not negated else None
    return _without_case(match) if match and insensitive and kind != "regex" else match


def _without_case(match: ImportedValueMatch) -> ImportedValueMatch:
    pattern = match.value if match.regex else re.escape(match.value)
    return ImportedValueMatch(match.name, f"(?i){pattern}", regex=True)
