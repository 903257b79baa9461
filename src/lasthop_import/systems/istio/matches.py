"""Translates the matches of a route.

If a condition cannot be written, its whole match is left out: without the condition, it would match more requests than before.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lasthop_import.model import ImportedMatch, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.istio.kinds import gateway_name
from lasthop_import.values import exact_path, methods, string_prefix, value_match

_NEVER: Final = {
    "withoutHeaders": "a header that must not be there",
    "sourceLabels": "labels of the client's Pod, which a gateway does not know",
    "sourceNamespace": "the client's namespace, which a gateway does not know",
}


class HTTPMatch(NamedTuple):
    """An entry of `match`: a match for each of its methods, and the requests and gateways that it is limited to."""

    matches: tuple[ImportedMatch, ...] = (ImportedMatch(),)
    prefix: str | None = "/"
    """The prefix that a rewrite replaces; None replaces the whole path."""
    authority: str = ""
    port: int = 0
    scheme: str = ""
    gateways: tuple[str, ...] = ()
    """Empty means the gateways of the VirtualService."""


def read_match(reader: FieldReader) -> HTTPMatch | None:
    """Returns a match. Returns None, and lists the conditions, if some conditions cannot be written."""
    reader.ignore("name", "statPrefix")
    problems = [text for key, text in _NEVER.items() if key in reader]
    reader.ignore(*_NEVER)
    path, prefix = _path(_string(reader, "uri"), reader.boolean("ignoreUriCase"))
    method_names = _methods(_string(reader, "method"))
    if method_names is None:
        problems.append("methods by a pattern")
    scheme, authority = _scheme(reader, problems), _authority(reader, problems)
    headers, query = (_values(reader, key, problems) for key in ("headers", "queryParams"))
    port, gateways = reader.integer("port") or 0, read_gateway_names(reader)
    if problems or method_names is None:
        text = f"the match is left out, because it has {', and '.join(problems)}, for which there is no equivalent"
        reader.note(Category.CANNOT, "match-left-out", text, severity=NoteSeverity.HIGH)
        return None
    matches = tuple(ImportedMatch(path, headers, query, method) for method in method_names or ("",))
    return HTTPMatch(matches, prefix, authority, port, scheme, gateways)


def read_gateway_names(match: FieldReader) -> tuple[str, ...]:
    """Returns the full names of the gateways that a match is limited to; empty means those of the VirtualService."""
    return tuple(gateway_name(name, match.namespace) for name in match.texts("gateways"))


def _scheme(reader: FieldReader, problems: list[str]) -> str:
    condition = _string(reader, "scheme")
    if condition and (condition[0] != "exact" or condition[1].lower() not in ("http", "https")):
        problems.append("a scheme other than exactly http or https")
    return condition[1].lower() if condition else ""


def _authority(reader: FieldReader, problems: list[str]) -> str:
    condition = _string(reader, "authority")
    if condition and condition[0] != "exact":
        problems.append("an authority other than an exact one")
    return (condition[1].rpartition(":")[0] or condition[1]).lower() if condition else ""


def _values(reader: FieldReader, key: str, problems: list[str]) -> tuple[ImportedValueMatch, ...]:
    matches = {name: _value(name, condition) for name, condition in sorted(reader.mapping(key).items())}
    problems += [f"{key}: {name[:60]}" for name, match in matches.items() if match is None]
    return tuple(match for match in matches.values() if match is not None)


def _string(reader: FieldReader, key: str) -> tuple[str, str] | None:
    """Returns kind and value of a StringMatch; None if it is not set."""
    if key not in reader:
        reader.ignore(key)
        return None
    condition = reader.child(key)
    return next(((kind, condition.text(kind)) for kind in ("exact", "prefix", "regex") if kind in condition), ("present", ""))


def _path(condition: tuple[str, str] | None, insensitive: bool) -> tuple[PathMatch | None, str | None]:
    if condition is None or condition[0] == "present":
        return None, "/"
    kind, value = condition
    if kind == "exact":
        return exact_path(value, ignore_case=insensitive), None
    if kind == "prefix":
        path = string_prefix(value, ignore_case=insensitive)
        return path, value if path.kind is PathKind.STRING else None
    return PathMatch(PathKind.REGEX, value), None


def _methods(condition: tuple[str, str] | None) -> tuple[str, ...] | None:
    """Returns the methods. Empty means any; None means that they cannot be listed."""
    if condition is None or condition[0] == "present":
        return ()
    kind, value = condition
    return methods(value, regex=kind == "regex") if kind in ("exact", "regex") else None


def _value(name: str, condition: Any) -> ImportedValueMatch | None:
    if not isinstance(condition, dict) or not all(isinstance(value, str) for value in condition.values()):
        return None
    if not condition:
        return value_match(name, "present", "")
    if len(condition) > 1:
        return None
    ((kind, value),) = condition.items()
    return value_match(name, kind, value) if kind in ("exact", "prefix", "regex") else None
