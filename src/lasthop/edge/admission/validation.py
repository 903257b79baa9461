"""Translates JSON Schema errors to problems that a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.hostname_words import hostname_problem
from lasthop.edge.admission.limits import MAX_PROBLEMS
from lasthop.edge.admission.problem import Problem, shown
from lasthop.edge.admission.structural import CLOSE
from lasthop.engine.plan import reasons

_NAMED_VALUES: Final = ("headers", "queryParams", "set", "add")
"""Lists of names with values."""
_KINDS: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "boolean": "true or false",
}


def schema_problems(validator: jsonschema_rs.Draft4Validator, document: Any, secret: bool) -> Iterator[Problem]:
    """Yields the violations of the schema, up to the limit. Values of a secret document, and of headers and query parameters,
    which may be credentials, are never quoted: findings are logged and passed on."""
    if validator.is_valid(document):
        return
    for error in islice(validator.iter_errors(document), MAX_PROBLEMS + 1):
        hidden = secret or _may_be_credential(tuple(error.instance_path))
        yield _problem(error, "the value" if hidden else shown(error.instance))


def _may_be_credential(path: tuple[str | int, ...]) -> bool:
    return len(path) > 2 and path[-1] == "value" and path[-3] in _NAMED_VALUES


def _problem(error: jsonschema_rs.ValidationError, value: str) -> Problem:
    path = tuple(error.instance_path)
    detail = error.kind.as_dict()
    limit = detail.get("limit")
    match error.kind.name:
        case "required":
            return Problem("required field is missing", (*path, detail["property"]), reason=reasons.REQUIRED)
        case "type":
            wanted = " or ".join(_KINDS.get(t, t) for t in detail["types"])
            quote = "Put it in quotes." if "string" in detail["types"] and isinstance(error.instance, int | float) else ""
            return Problem(f"must be {wanted}, not {type_name(error.instance)}", path, quote)
        case "enum":
            options = [str(option) for option in detail["options"]]
            close = closest(str(error.instance), options, CLOSE) if len(options) > 1 else ""
            return Problem(f"{value} is not one of {', '.join(options)}", path, f"Did you mean {close}?" if close else "")
        case "pattern":
            if found := hostname_problem(str(error.instance), detail["pattern"]):
                return Problem(f"{value} {found[0]}", path, found[1])
            return Problem(f"{value} does not match {detail['pattern']}", path)
        case "minimum":
            return Problem(f"{value} is less than {limit}", path)
        case "maximum":
            return Problem(f"{value} is greater than {limit}", path)
        case "minLength":
            return Problem("must not be empty" if limit == 1 else f"must have at least {limit} characters", path)
        case "maxLength":
            return Problem(f"has more than {limit} characters", path, reason=reasons.TOO_LARGE)
        case "minItems":
            return Problem("must not be empty" if limit == 1 else f"must have at least {limit} items", path)
        case "maxItems":
            return Problem(f"has more than {limit} items", path)
        case "minProperties":
            return Problem(f"must have at least {limit} fields", path)
        case "maxProperties":
            return Problem(f"has more than {limit} entries", path, reason=reasons.TOO_LARGE)
        case _:
            return Problem(f"{value} does not fit the schema ({error.kind.name})", path)


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
