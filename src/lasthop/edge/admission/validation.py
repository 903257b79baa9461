"""Translates JSON Schema errors into problems that a user can act on. For example, it explains an invalid hostname instead of
quoting the pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import jsonschema_rs
import msgspec

from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.limits import MAX_MESSAGE, MAX_PROBLEMS
from lasthop.edge.admission.problem import FieldProblem, shown
from lasthop.edge.admission.structural import CLOSE
from lasthop.engine.plan import reasons

_NAMED_VALUES: Final = ("headers", "queryParams", "set", "add")
"""Fields that contain a list of names with values."""
_BLOCKING: Final = ("required", "type", "enum", "maxLength", "maxItems", "maxProperties")
"""After these errors an API server evaluates no CEL rules; after others, such as a pattern, it evaluates all."""
_KINDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "boolean": "true or false",
}

HOSTNAMES: Final = {
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": False,
    r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": True,
}
"""The hostname patterns of the Gateway API, and whether each permits a wildcard as the first label."""
_PARTS: Final = re.compile(
    r"^(?P<scheme>[a-z][a-z0-9+.-]*://)?(?P<host>[^/:?#]*)(?P<port>:\d+)?(?P<path>[/?#].*)?$", re.IGNORECASE
)

_NOT_PARTS: Final = {
    "scheme": "is a URL and not a hostname",
    "port": "has a port, which is not part of a hostname",
    "path": "has a path, which is not part of a hostname",
}


def schema_problems(validator: jsonschema_rs.Draft4Validator, document: Any, secret: bool) -> Iterator[FieldProblem]:
    """Yields the violations of the schema, up to the limit. Values of Secrets, headers and query parameters may be
    credentials, so they are never quoted: findings are logged and passed on."""
    if validator.is_valid(document):
        return
    for error in islice(validator.iter_errors(document), MAX_PROBLEMS + 1):
        hidden = secret or _may_be_credential(tuple(error.instance_path))
        problem = _problem(error, "the value" if hidden else shown(error.instance))
        yield msgspec.structs.replace(problem, blocks_rules=True) if error.kind.name in _BLOCKING else problem


def _may_be_credential(path: tuple[str | int, ...]) -> bool:
    return len(path) > 2 and path[-1] == "value" and path[-3] in _NAMED_VALUES


def _problem(error: jsonschema_rs.ValidationError, value: str) -> FieldProblem:
    path = tuple(error.instance_path)
    detail = error.kind.as_dict()
    if outside := _outside_limit(error.kind.name, detail.get("limit"), value):
        large = error.kind.name in ("maxLength", "maxProperties")
        return FieldProblem(outside, path, reason=reasons.TOO_LARGE if large else reasons.INVALID)
    match error.kind.name:
        case "required":
            return FieldProblem("required field is missing", (*path, detail["property"]), reason=reasons.REQUIRED)
        case "type":
            types = " or ".join(_KINDS.get(t, t) for t in detail["types"])
            quote = "Put it in quotes." if "string" in detail["types"] and isinstance(error.instance, int | float) else ""
            return FieldProblem(f"must be {types}, not {type_name(error.instance)}", path, quote)
        case "enum":
            options = [str(option) for option in detail["options"]]
            close = closest(str(error.instance), options, CLOSE) if len(options) > 1 else ""
            return FieldProblem(f"{value} is not one of {', '.join(options)}", path, f"Did you mean {close}?" if close else "")
        case "pattern":
            if explained := hostname_problem(str(error.instance), detail["pattern"]):
                return FieldProblem(f"{value} {explained[0]}", path, explained[1])
            return FieldProblem(f"{value} does not match {detail['pattern']}", path)
        case _:
            return FieldProblem(f"{value} does not match the schema ({error.kind.name})", path)


def _outside_limit(kind: str, limit: Any, value: str) -> str:
    """Returns the message for a value that is too small, too large, too short or too long; empty for other errors."""
    if kind in ("minLength", "minItems") and limit == 1:
        return "must not be empty"
    violated = {
        "minimum": f"{value} is less than {limit}",
        "maximum": f"{value} is greater than {limit}",
        "minLength": f"must have at least {limit} characters",
        "maxLength": f"has more than {limit} characters",
        "minItems": f"must have at least {limit} items",
        "maxItems": f"has more than {limit} items",
        "minProperties": f"must have at least {limit} fields",
        "maxProperties": f"has more than {limit} entries",
    }
    return violated.get(kind, "")


def type_name(value: object) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "a mapping"


def hostname_problem(written: str, pattern: str) -> tuple[str, str] | None:
    """Returns the problem, which follows the value in a sentence, and the remedy; None if the pattern is not a hostname's."""
    if pattern not in HOSTNAMES:
        return None
    # A very long value gets no suggestion, because it may have a megabyte.
    parts = _PARTS.match(written) if len(written) <= MAX_MESSAGE else None
    host = parts["host"].lower() if parts else ""
    remedy = f"Write {host}." if re.match(pattern, host) else "Write a name such as api.example."
    return _hostname_mistake(written, parts, wildcard=HOSTNAMES[pattern]), remedy


def _hostname_mistake(written: str, parts: re.Match[str] | None, *, wildcard: bool) -> str:
    if parts and (mistake := next((problem for part, problem in _NOT_PARTS.items() if parts[part]), "")):
        return mistake
    if written.startswith("*") and not wildcard:
        return "has a wildcard, which is not allowed here"
    if written != written.lower():
        return "has upper-case letters"
    return "is not a DNS name: labels of a-z, 0-9 and -, with dots between"
