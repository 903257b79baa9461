"""Applies the structure of a schema to a document like an API server: defaults, unknown fields, list keys."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.problem import FieldProblem, Path, Problems, shown
from lasthop.edge.admission.schema import SchemaNode
from lasthop.engine.plan import reasons

_COMPOUND: Final = (dict, list)
CLOSE: Final = 0.7
"""Minimum similarity of a suggested word: typos in files are usually small."""


def structured(node: SchemaNode, value: Any, path: Path, problems: Problems) -> Any:
    """Returns a copy of the value with defaults and without nulls. YAML aliases make documents share parts, hence the copy.

    Unknown fields and repeated list keys are added to `problems`. A value of the wrong type is returned unchanged; the
    validator reports it.
    """
    if problems.full:
        return value
    if isinstance(value, dict) and node.is_object:
        return _object(node, value, path, problems)
    if isinstance(value, list) and node.items is not None:
        if node.max_items is not None and len(value) > node.max_items:
            # Defaults would multiply a list that is too long, so it is truncated first.
            problems.append(FieldProblem(f"has more than {node.max_items} items", path, reason=reasons.TOO_LARGE))
            value = value[: node.max_items]
        result = [structured(node.items, item, (*path, i), problems) for i, item in enumerate(value)]
        if node.list_type != "atomic":
            problems.extend(_repeated(node, result, path))
        return result
    return value


def _object(node: SchemaNode, value: Json, path: Path, problems: Problems) -> Json:
    result: Json = {}
    for name, item in value.items():
        below = node.properties.get(name) or node.additional
        if problems.full:
            break
        if below is None:
            problems.append(unknown_field(name, node.properties, path))
        elif isinstance(item, _COMPOUND):
            result[name] = structured(below, item, (*path, name), problems)
        elif item is not None:
            result[name] = item
    for name, default in node.defaults.items():
        if name in result:
            continue
        if isinstance(default, _COMPOUND):  # it may have defaults inside
            result[name] = structured(node.properties[name], deepcopy(default), (*path, name), problems)
        else:
            result[name] = default
    return result


def unknown_field(name: str, fields: Iterable[str], path: Path) -> FieldProblem:
    names = sorted(fields)
    return FieldProblem(f"unknown field {shown(name)}", (*path, name), did_you_mean(name, names), reasons.UNKNOWN_FIELD)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Suggests a similar word, or lists the choices if there are few."""
    choice = sorted(set(words))
    if close := closest(word, choice, CLOSE):
        return f"Did you mean {close}?"
    return f"Known here: {', '.join(choice)}." if 0 < len(choice) <= 8 else ""


def _repeated(node: SchemaNode, items: list[Any], path: Path) -> Iterable[FieldProblem]:
    """Yields repeated items. In a list of type map they have the same keys, in a set they are equal."""
    seen: dict[str, int] = {}
    for i, item in enumerate(items):
        if node.list_type == "map":
            if not isinstance(item, dict):
                continue
            identity: Any = {key: item.get(key) for key in node.list_keys}
        else:
            identity = item
        first = seen.setdefault(shown(identity, limit=10_000), i)
        if first != i:
            yield FieldProblem(
                f"the same {' and '.join(node.list_keys) or 'value'} as item {first}: {shown(identity)}",
                (*path, i),
                "Remove or rename one of them.",
                reasons.DUPLICATE,
            )
