"""Evaluates the CRDs' CEL rules (x-kubernetes-validations) like the API server, at every field with rules.

All rules of a field are first evaluated as one expression, and one by one only if that fails. A rule that cannot be evaluated
counts as violated, as in the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import msgspec

from lasthop.edge.admission.expressions import ERRORS, Expression, compiled
from lasthop.edge.admission.problem import FieldProblem, Path
from lasthop.edge.admission.schema import KEYWORDS, SchemaNode
from lasthop.engine.plan import reasons

FORMAT_CALL = re.compile(r"format\.(\w+)\(\)\.validate\((.*?)\)\.hasValue\(\)")
"""Kubernetes' library of named formats, which plain CEL lacks; `hasValue()` means there are errors."""
MAX_CACHED: Final = 256
"""Bytes of a value whose result is cached, because thousands of routes have the same path, filter or parent."""
MAX_RESULTS: Final = 10_000
_RESULTS: Final[dict[tuple[str, bytes], bool]] = {}
"""Results by rule and value as JSON. A rule reads nothing else, so a result never changes."""


def violations(root: SchemaNode, document: Any, broken: Iterable[Path]) -> Iterator[FieldProblem]:
    """Yields the violated rules of a structured document. `broken` are fields that are missing, too large, or of a wrong type
    or value. The rules at these fields and above them are skipped; an API server would skip all rules."""
    if root.has_rules:
        skipped = {path[:n] for path in broken for n in range(len(path) + 1)}
        yield from _walk(root, document, _escaped(root, document), (), skipped)


def _walk(node: SchemaNode, value: Any, escaped: Any, path: Path, skipped: set[Path]) -> Iterator[FieldProblem]:
    if node.rules and path not in skipped:
        yield from _violated(node, escaped, path)
    for key, item, below in _children(node, value):
        if below.has_rules:
            yield from _walk(below, item, escaped[key], (*path, key), skipped)


def _children(node: SchemaNode, value: Any) -> Iterator[tuple[str | int, Any, SchemaNode]]:
    """Yields the fields of a mapping, or the items of a list, that have a schema, each with its schema."""
    if isinstance(value, dict):
        for name, item in value.items():
            if (below := node.properties.get(name) or node.additional) is not None:
                yield name, item, below
    elif isinstance(value, list) and node.items is not None:
        for number, item in enumerate(value):
            yield number, item, node.items


def _violated(node: SchemaNode, value: Any, path: Path) -> Iterator[FieldProblem]:
    if _holds(node.all_rules, value):
        return
    for rule in node.rules:
        if not _holds(rule.rule, value):
            yield FieldProblem(rule.message, path, reason=reasons.RULE_VIOLATED)


def _holds(rule: str, value: Any) -> bool:
    encoded = msgspec.json.encode(value)
    if len(encoded) > MAX_CACHED:
        return _evaluated(rule, value)
    if (rule, encoded) not in _RESULTS:
        if len(_RESULTS) >= MAX_RESULTS:
            _RESULTS.clear()
        _RESULTS[rule, encoded] = _evaluated(rule, value)
    return _RESULTS[rule, encoded]


def _evaluated(rule: str, value: Any) -> bool:
    try:
        return program(rule)({"self": value}) is True
    except ERRORS:
        return False


def _escaped(node: SchemaNode, value: Any) -> Any:
    """Copies fields that have a CEL keyword as their name to their escaped names. Most values are returned unchanged."""
    if not node.has_keywords:
        return value
    if not isinstance(value, dict | list):
        return value
    result: Any = value.copy()
    for key, item, below in _children(node, value):
        result[key] = _escaped(below, item)
        if key in node.properties and key in KEYWORDS:
            result[f"__{key}__"] = result[key]
    return result


@cache
def program(rule: str) -> Expression:
    return compiled(FORMAT_CALL.sub(r'!isFormat("\1", \2)', rule))
