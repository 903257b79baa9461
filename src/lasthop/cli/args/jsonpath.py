"""`-o jsonpath=PATH`: names, indexes and `[*]` of the JSON that a command prints; filters and templates are left to jq."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

_STEP: Final = re.compile(
    r"""\.?\[(?:(?P<index>-?\d+)|(?P<all>\*)|'(?P<quoted>[^']*)'|"(?P<double>[^"]*)")\]"""
    r"""|\.?(?P<name>(?:[^.\[\]{}()'"\s*?@|\\]|\\.)+)|\.(?P<wildcard>\*)"""
)
_SHOWN_FIELDS: Final = 10

Step = str | int | None
"""A field, an index, or None: all of them."""


class JSONPathError(Exception):
    """The path has a syntax error or matches nothing. The message contains the position."""


def parse(expression: str) -> tuple[Step, ...]:
    """Reads `.a.b[0].c`, `[*].a`, `{.a['b.c']}`. Raises `JSONPathError`."""
    path = expression.strip()
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1].strip()
    path = path.removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(path) and path != ".":
        match = _STEP.match(path, position)
        if not match:
            raise JSONPathError(
                f"cannot read {path[position:]} in {expression}; write names, [0] and [*], as in [*].metadata.name"
            )
        steps.append(_step(match))
        position = match.end()
    if not path:
        raise JSONPathError("the path is missing; write for example jsonpath=[*].metadata.name")
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["all"] or match["wildcard"]:
        return None
    if match["index"]:
        return int(match["index"])
    if match["name"]:
        return re.sub(r"\\(.)", r"\1", match["name"])
    return match["quoted"] if match["quoted"] is not None else match["double"]


def lines(document: Any, steps: Sequence[Step]) -> Iterator[str]:
    """Yields the values at the path: strings as they are, others as JSON. After `[*]` it omits items without the field, unless
    all lack it. Raises `JSONPathError`."""
    for value in _walk(document, steps, ""):
        yield value if isinstance(value, str) else json.dumps(value)


def _walk(value: Any, steps: Sequence[Step], place: str) -> list[Any]:
    if not steps:
        return [value]
    step, rest = steps[0], steps[1:]
    if step is not None:
        return _walk(_below(value, step, place), rest, f"{place}{_shown(step)}")
    if not isinstance(value, list | dict):
        raise JSONPathError(f"{place or 'the document'} is {_kind(value)}, so it has no [*]")
    items = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    values, errors = list[Any](), list[JSONPathError]()
    for key, item in items:
        try:
            values += _walk(item, rest, f"{place}{_shown(key)}")
        except JSONPathError as error:
            errors.append(error)
    if errors and len(errors) == len(items):
        raise errors[0]
    return values


def _below(value: Any, step: str | int, place: str) -> Any:
    where = place or "the document"
    if isinstance(step, int):
        if not isinstance(value, list):
            raise JSONPathError(f"{where} is {_kind(value)}, so it has no {_shown(step)}")
        if not -len(value) <= step < len(value):
            raise JSONPathError(f"{where} has {len(value)} items, so it has no {_shown(step)}")
        return value[step]
    if not isinstance(value, dict):
        raise JSONPathError(f"{where} is {_kind(value)}, so it has no {_shown(step)}{_through_items(value, step, place)}")
    if step not in value:
        fields = ", ".join(list(value)[:_SHOWN_FIELDS]) + (", …" if len(value) > _SHOWN_FIELDS else "")
        raise JSONPathError(f"{where} has no {_shown(step)}; it has {fields or 'no fields'}")
    return value[step]


def _through_items(value: Any, step: str, place: str) -> str:
    if not isinstance(value, list):
        return ""
    inside = any(isinstance(item, dict) and step in item for item in value)
    return f"; write {place}[*]{_shown(step) if inside else ''}"


def _shown(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if re.fullmatch(r"[\w-]+", step) else f"['{step}']"


def _kind(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


_META: Final = "lasthop.jsonpath"


def choose(context: click.Context, text: str) -> None:
    """Makes the command print only the part of its JSON that a path selects."""
    context.meta[_META] = parse(text)


def chosen() -> bool:
    return _META in click.get_current_context().meta


def echo_json(text: str) -> None:
    """Prints JSON, or with `-o jsonpath=PATH` the selected values, one per line."""
    from lasthop.base.text.printable import printable

    if not chosen():
        click.echo(text)
        return
    try:
        for line in lines(json.loads(text), click.get_current_context().meta[_META]):
            click.echo(printable(line))
    except JSONPathError as error:
        raise click.ClickException(f"-o jsonpath: {error}") from None
