"""Translates the matches of a route. A condition that cannot be written leaves its whole match out: without it, the
match would take more requests than before."""

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
    """One entry of `match`, as matches for each of its methods, and where it applies."""

    matches: tuple[ImportedMatch, ...] = (ImportedMatch(),)
    prefix: str | None = "/"
    """The prefix that a rewrite replaces; None: the whole path."""
    authority: str = ""
    port: int = 0
    scheme: str = ""
    gateways: tuple[str, ...] = ()
    """Empty: those of the VirtualService."""


def read_match(reader: FieldReader) -> HTTPMatch | None:
    """Returns a match; None if a condition of it cannot be written, which is listed."""
    reader.ignore("name", "statPrefix")
    problems = [text for key, text in _NEVER.items() if key in reader]
    reader.ignore(*_NEVER)
    path, prefix = _path(_string(reader, "uri"), reader.boolean("ignoreUriCase"))
    verbs = _methods(_string(reader, "method"))
    if verbs is None:
        problems.append("methods by a pattern")
    scheme, authority = _scheme(reader, problems), _authority(reader, problems)
    headers, query = (_values(reader, key, problems) for key in ("headers", "queryParams"))
    port, gateways = reader.integer("port") or 0, read_gateway_names(reader)
    if problems or verbs is None:
        text = f"the match is left out, because it has {', and '.join(problems)}, for which there is no equivalent"
        reader.note(Category.CANNOT, "match-left-out", text, severity=NoteSeverity.HIGH)
        return None
    matches = tuple(ImportedMatch(path, headers, query, method) for method in verbs or ("",))
    return HTTPMatch(matches, prefix, authority, port, scheme, gateways)


def read_gateway_names(match: FieldReader) -> tuple[str, ...]:
    """Returns the whole names of the gateways that a match is limited to; empty: those of the VirtualService."""
    return tuple(gateway_name(each, match.namespace) for each in match.texts("gateways"))


def _scheme(reader: FieldReader, problems: list[str]) -> str:
    found = _string(reader, "scheme")
    if found and (found[0] != "exact" or found[1].lower() not in ("http", "https")):
        problems.append("a scheme other than exactly http or https")
    return found[1].lower() if found else ""


def _authority(reader: FieldReader, problems: list[str]) -> str:
    found = _string(reader, "authority")
    if found and found[0] != "exact":
        problems.append("an authority other than an exact one")
    return (found[1].rpartition(":")[0] or found[1]).lower() if found else ""


def _values(reader: FieldReader, key: str, problems: list[str]) -> tuple[ImportedValueMatch, ...]:
    wanted = {name: _value(name, condition) for name, condition in sorted(reader.mapping(key).items())}
    problems += [f"{key}: {name[:60]}" for name, found in wanted.items() if found is None]
    return tuple(found for found in wanted.values() if found is not None)


def _string(reader: FieldReader, key: str) -> tuple[str, str] | None:
    """Returns kind and value of a StringMatch; None if it is empty."""
    if key not in reader:
        reader.ignore(key)
        return None
    below = reader.child(key)
    return next(((kind, below.text(kind)) for kind in ("exact", "prefix", "regex") if kind in below), ("present", ""))


def _path(found: tuple[str, str] | None, insensitive: bool) -> tuple[PathMatch | None, str | None]:
    if found is None or found[0] == "present":
        return None, "/"
    kind, value = found
    if kind == "exact":
        return exact_path(value, ignore_case=insensitive), None
    if kind == "prefix":
        path = string_prefix(value, ignore_case=insensitive)
        return path, value if path.kind is PathKind.STRING else None
    return PathMatch(PathKind.REGEX, value), None


def _methods(found: tuple[str, str] | None) -> tuple[str, ...] | None:
    """Returns the methods; empty: any; None: they cannot be listed."""
    if found is None or found[0] == "present":
        return ()
    kind, value = found
    return methods(value, regex=kind == "regex") if kind in ("exact", "regex") else None


def _value(name: str, condition: Any) -> ImportedValueMatch | None:
    if not isinstance(condition, dict) or not all(isinstance(each, str) for each in condition.values()):
        return None
    if not condition:
        return value_match(name, "present", "")
    if len(condition) > 1:
        return None
    ((kind, value),) = condition.items()
    return value_match(name, kind, value) if kind in ("exact", "prefix", "regex") else None
