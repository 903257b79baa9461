"""Our CEL and Google's agree on every rule of the CRDs, for any input."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.kinds import KINDS
from lasthop.edge.admission.cel import FORMAT_CALL, program
from lasthop.edge.admission.expressions import ERRORS, compiled, is_format
from lasthop.edge.admission.schema import SchemaNode, schema_of

VALUES = 150
"""Of each rule."""
MOSTLY_DECIDED = 0.9
TEXTS = (
    "",
    "a",
    "*.a.b",
    "a.b",
    "a/b",
    "k8s.io/x",
    "10.0.0.1",
    "::1",
    "1s",
    "0s",
    "90m",
    "1.5s",
    "2020-01-01T00:00:00Z",
    "\t\u2003",
)
"""Further texts to evaluate rules with."""
ABSORBED = (
    "self.none || true",
    "true || self.none",
    "self.none && false",
    "false && self.none",
    "self.none || false",
    "self.none && true",
    "self.list.all(each, self.none)",
    "self.list.all(each, each > 1 && self.none)",
    "self.list.exists(each, each == 2 || self.none)",
    "self.list.exists_one(each, each == 2 || self.none)",
    "self.list[5] == 1",
    "self.list[self.below] == 1",
    "self.list[self.yes] == 2",
    "self.list[1] == 2",
    "1 in self.list",
    "'list' in self",
    "'1' in self.text",
    "self.text == 1",
    "self.text.matches('b')",
    "self.yes == 1",
    "true in self.list",
    "self.text < 1",
    "self.text < 'z'",
    "self.text.substring(1) == 'b'",
    "self.text.substring(2) == ''",
    "self.text.substring(3) == ''",
    "self.list.filter(each, each > 1).size() == 1",
    "has(self.list) && !has(self.none)",
    "has(self.text.none)",
    "self.text ? true : false",
    "self.yes ? self.none : true",
    "!self.yes || self.yes == true",
    "size('\u00e9') == 1",
    "duration('1h1.5s') == duration('3601500ms')",
    "duration('1') == duration('1s')",
    "duration('-1s') < duration('0s')",
    "duration('\uff11s') == duration('1s')",
    "duration('\u0661.5s') == duration('1500ms')",
    "duration('1h\u0661s') > duration('1h')",
    "timestamp('2020-01-01T00:00:00.\u0661Z') >= timestamp('2020-01-01T00:00:00Z')",
    "timestamp('2020-01-01T00:00:00+00:60') == timestamp('2019-12-31T23:00:00Z')",
    "timestamp('2020-01-01T01:00:00+01:00') == timestamp('2020-01-01T00:00:00Z')",
    "timestamp('2020-01-01T24:00:00Z') == timestamp('2020-01-02T00:00:00Z')",
    "timestamp('9999-12-31T23:59:59Z') > timestamp('9999-12-31T23:59:58Z')",
    "timestamp('9999-12-31T23:59:59-01:00') > timestamp('9999-12-31T23:59:58Z')",
    "timestamp('0001-01-01T00:00:00+01:00') < timestamp('9999-12-31T23:59:58Z')",
    "timestamp('2020-01-01') == timestamp('2020-01-01T00:00:00Z')",
    "1 + 1 == 2 && r'\\d' == '\\\\d'",
)
WORLD: dict[str, Any] = {"below": -1, "list": [1, 2], "text": "ab", "yes": True}


def all_rules() -> list[str]:
    rules: dict[str, None] = {}
    for name, kind in KINDS.items():
        for version in kind.versions:
            rules |= dict.fromkeys(_rules(schema_of(name, version).root))
    return list(rules)


def _rules(node: SchemaNode) -> Iterator[str]:
    yield from (rule.rule for rule in node.rules)
    for below in (*node.properties.values(), node.items, node.additional):
        if below is not None:
            yield from _rules(below)


@cache
def _environment() -> Any:
    text, boolean = cel.Type.STRING, cel.Type.BOOL
    ip = cel.Overload("is_ip", return_type=boolean, parameters=[text], impl=is_ip)
    format = cel.Overload("is_format", return_type=boolean, parameters=[text, text], impl=is_format)
    return cel.NewEnv(
        variables={"self": cel.Type.DYN},
        extensions=[ext_strings.ExtStrings()],
        functions=[cel.FunctionDecl("isIP", [ip]), cel.FunctionDecl("isFormat", [format])],
    )


@cache
def _theirs(rule: str) -> Any:
    return _environment().compile(FORMAT_CALL.sub(r'!isFormat("\1", \2)', rule))


def theirs(rule: str, value: Any) -> bool | None:
    """Returns None if it cannot be evaluated."""
    result = _theirs(rule).eval(data={"self": value}).value()
    return result if isinstance(result, bool) else None


def ours(rule: str, value: Any) -> bool | None:
    try:
        result = program(rule)({"self": value})
    except ERRORS:
        return None
    return result if isinstance(result, bool) else None


def drawn(chance: random.Random, names: list[str], texts: list[str], depth: int = 0) -> Any:
    """Draws content for the part of a document that the rule reads: its fields and the texts that it compares with."""
    kind = chance.choice("tttnbld" if depth else "tnllldddd")
    match kind if depth < 4 else "t":
        case "d":
            kept = [name for name in names if chance.random() < 0.6]
            return {name: drawn(chance, names, texts, depth + 1) for name in kept}
        case "l":
            return [drawn(chance, names, texts, depth + 1) for _ in range(chance.randrange(4))]
        case "n":
            return chance.randrange(4)
        case "b":
            return chance.random() < 0.5
    return chance.choice(texts)


def test_every_rule_evaluates_as_in_googles_cel() -> None:
    """Whether it holds: an object is refused likewise where it does not and where it cannot be evaluated."""
    rules, decided = all_rules(), 0
    assert len(rules) > 120
    for rule in rules:
        chance = random.Random(rule)
        names = sorted(set(re.findall(r"\.(\w+)\b(?!\()", rule)))
        texts = [*TEXTS, *re.findall(r"'([^']*)'", rule)]
        seen = set()
        for _ in range(VALUES):
            value = drawn(chance, names, texts)
            holds = theirs(rule, value) is True
            assert (ours(rule, value) is True) is holds, (rule, value)
            seen.add(holds)
        decided += {True, False} <= seen
    assert decided >= MOSTLY_DECIDED * len(rules)


@pytest.mark.parametrize("expression", ABSORBED)
def test_errors_and_values_are_those_of_googles_cel(expression: str) -> None:
    assert ours(expression, WORLD) is theirs(expression, WORLD)


@pytest.mark.parametrize("text", ["", "1 * 2", "self.f(", "has(self)", "self.map(x, x)", "dyn(1)", "a b", "'a", "f()", "{}"])
def test_unused_parts_of_cel_are_refused(text: str) -> None:
    with pytest.raises(SyntaxError):
        compiled(text)
