"""Compiles the part of CEL that the CRDs' rules use into Python functions.

    text ──tokens──> _Parser ──> a function of the variables: {"self": value} -> result

Every rule of the CRDs that Lasthop ships is compiled and compared with Google's CEL by
`tests/properties/test_expressions.py`. That library is not used here because it is 52 MB, a fifth of an installation.
`compiled` refuses the parts of CEL that no rule uses (arithmetic except `+`, maps, messages, types).

An error is an exception. As in CEL, `false && error` is false and `true || error` is true, on either side, and `all` and
`exists` treat their items likewise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import re2

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.names import is_dns_label, is_dns_subdomain, is_qualified_name

Expression = Callable[[Mapping[str, Any]], Any]
"""Returns the value of the expression for these variables."""
ERRORS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""Exceptions of an expression that cannot be evaluated."""


def compiled(text: str) -> Expression:
    """Compiles an expression. Raises SyntaxError for syntax that no rule of the CRDs uses."""
    parser = _Parser(text)
    result = parser.expression()
    parser.expect("")
    return result


# --- values ----------------------------------------------------------------------------------------------------------

_UNITS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "µs": 1}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|s|us|µs)", re.ASCII)
_DURATION: Final = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):\d\d:\d\d(?:\.\d+)?(?:Z|[-+](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""Unicode white space; Python's `strip` removes more."""
_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "dns1123Label": is_dns_label,
    "dns1123Subdomain": is_dns_subdomain,
    "qualifiedName": is_qualified_name,
}


def _typed(value: Any, *kinds: type) -> Any:
    if type(value) not in kinds:
        raise TypeError(f"{type(value).__name__} where {kinds[0].__name__} is needed")
    return value


def _true(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise TypeError(f"{type(value).__name__} where bool is needed")


def _text(value: Any) -> str:
    return str(_typed(value, str))


def _duration(text: Any) -> timedelta:
    if not _DURATION.fullmatch(_text(text)):
        raise ValueError("not a duration")
    micros = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return timedelta(microseconds=-micros if text.startswith("-") else micros)


def _timestamp(text: Any) -> datetime:
    if not _TIMESTAMP.fullmatch(_text(text)):
        raise ValueError("not an RFC 3339 time")
    return datetime.fromisoformat(text).astimezone(UTC)  # from the year 1 to 9999 in UTC, as in CEL


def is_format(name: str, text: Any) -> bool:
    return _FORMATS[name](_text(text))


def _size(value: Any) -> int:
    return len(_typed(value, str, list, dict))


def _substring(text: str, start: Any) -> str:
    if not 0 <= _typed(start, int) <= len(text):
        raise ValueError("outside of the text")
    return text[start:]


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _contains(item: Any, container: Any) -> bool:
    return any(_same(item, element) for element in _typed(container, list, dict))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(left: Any, right: Any) -> bool:
        if type(left) is not type(right) and {type(left), type(right)} != {int, float}:
            raise TypeError("no order between these")
        return compare(left, right)

    return compared


def _sum(left: Any, right: Any) -> int:
    return int(_typed(left, int) + _typed(right, int))


_RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<": _ordered(lambda left, right: left < right),
    "<=": _ordered(lambda left, right: left <= right),
    ">": _ordered(lambda left, right: left > right),
    ">=": _ordered(lambda left, right: left >= right),
    "in": _contains,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": _size,
    "duration": _duration,
    "timestamp": _timestamp,
    "isIP": lambda text: is_ip(_text(text)),
    "isFormat": is_format,
}
_METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "contains": lambda text, part: _text(part) in text,
    "startsWith": lambda text, part: text.startswith(_text(part)),
    "endsWith": lambda text, part: text.endswith(_text(part)),
    "matches": lambda text, pattern: re2.search(pattern, text) is not None,
    "split": lambda text, separator: text.split(_text(separator)),
    "substring": _substring,
    "trim": lambda text: text.strip(_SPACE),
}
"""Methods of strings."""


# --- expressions -----------------------------------------------------------------------------------------------------


def _constant(value: Any) -> Expression:
    return lambda variables: value


def _variable(name: str) -> Expression:
    return lambda variables: variables[name]


def _decided(left: Expression, right: Expression, by: bool) -> Expression:
    """Builds `||`, which a true side decides, or `&&`, which a false side decides, even if the other side fails."""

    def decided(variables: Mapping[str, Any]) -> bool:
        try:
            first = _true(left(variables))
        except ERRORS:
            if right(variables) is by:
                return bool(by)
            raise
        return by if first is by else _true(right(variables))

    return decided


def _chosen(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    return lambda variables: then(variables) if _true(condition(variables)) else otherwise(variables)


def _called(function: Callable[..., Any], *arguments: Expression) -> Expression:
    match arguments:
        case (argument,):
            return lambda variables: function(argument(variables))
        case (left, right):
            return lambda variables: function(left(variables), right(variables))
    raise SyntaxError("no function has so many arguments")


class _Member(msgspec.Struct, frozen=True):
    operand: Expression
    name: str

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        return _typed(self.operand(variables), dict)[self.name]


def _item(operand: Expression, key: Expression) -> Expression:
    def item(variables: Mapping[str, Any]) -> Any:
        value, key_or_index = _typed(operand(variables), list, dict), key(variables)
        if type(value) is list and _typed(key_or_index, int) < 0:
            raise IndexError("below 0")
        return value[key_or_index]

    return item


def _has(field: Expression) -> Expression:
    if not isinstance(field, _Member):
        raise SyntaxError("has() tests a field")
    return lambda variables: field.name in _typed(field.operand(variables), dict)


def _some(operand: Expression, name: str, condition: Expression, decides: bool) -> Expression:
    """Builds `exists`, which one item that satisfies the condition decides, or `all`, which one that violates it decides."""

    def some(variables: Mapping[str, Any]) -> bool:
        failed: Exception | None = None
        for item in _typed(operand(variables), list, dict):
            try:
                if _true(condition({**variables, name: item})) is decides:
                    return decides
            except ERRORS as error:
                failed = error
        if failed:
            raise failed
        return not decides

    return some


def _filtered(operand: Expression, name: str, condition: Expression) -> Callable[[Mapping[str, Any]], list[Any]]:
    return lambda variables: [
        item for item in _typed(operand(variables), list, dict) if _true(condition({**variables, name: item}))
    ]


def _exactly_one(operand: Expression, name: str, condition: Expression) -> Expression:
    filtered = _filtered(operand, name, condition)
    return lambda variables: len(filtered(variables)) == 1


_MACROS: Final[Mapping[str, Callable[[Expression, str, Expression], Expression]]] = {
    "all": lambda operand, name, condition: _some(operand, name, condition, decides=False),
    "exists": lambda operand, name, condition: _some(operand, name, condition, decides=True),
    "exists_one": _exactly_one,
    "filter": _filtered,
}


def _method(name: str, operand: Expression, arguments: list[Expression]) -> Expression:
    if name == "size":
        return _called(_size, operand)
    if name not in _METHODS:
        raise SyntaxError(f"there is no method {name}")
    method = _METHODS[name]
    return lambda variables: method(_text(operand(variables)), *[argument(variables) for argument in arguments])


# --- parsing ---------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<text> r?(?: \"{3}(?:.|\n)*?\"{3} | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) )"""
    r"""| (?P<number> \d+ ) | (?P<name> [A-Za-z_]\w* ) | (?P<sign> \|\| | && | [=!<>]= | [-!<>+?:.,()\[\]] ) )""",
    re.VERBOSE,
)
_WORDS: Final = {"true": True, "false": False, "null": None}


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if token is None:
            raise SyntaxError(f"{text[position : position + 20]!r} is not understood")
        yield token.lastgroup or "", token[token.lastgroup or 0]
        position = token.end()
    yield "end", ""


class _Parser:
    """Parses an expression from left to right, with one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._remaining = list(_tokens(text))[::-1]

    def _taken(self, *signs: str) -> str:
        """Takes the next token if it is one of `signs`."""
        kind, text = self._remaining[-1]
        return self._remaining.pop()[1] if text in signs and kind in ("sign", "name") else ""

    def expect(self, sign: str) -> None:
        kind, text = self._remaining.pop()
        if text != sign or kind == "text":
            raise SyntaxError(f"{text!r} where {sign!r} is needed")

    def expression(self) -> Expression:
        condition = self._either()
        if not self._taken("?"):
            return condition
        then = self.expression()
        self.expect(":")
        return _chosen(condition, then, self.expression())

    def _either(self) -> Expression:
        left = self._both()
        while self._taken("||"):
            left = _decided(left, self._both(), by=True)
        return left

    def _both(self) -> Expression:
        left = self._relation()
        while self._taken("&&"):
            left = _decided(left, self._relation(), by=False)
        return left

    def _relation(self) -> Expression:
        left = self._addition()
        while sign := self._taken(*_RELATIONS):
            left = _called(_RELATIONS[sign], left, self._addition())
        return left

    def _addition(self) -> Expression:
        left = self._negation()
        while self._taken("+"):
            left = _called(_sum, left, self._negation())
        return left

    def _negation(self) -> Expression:
        if self._taken("!"):
            return _called(lambda value: not _true(value), self._negation())
        operand: Expression = self._primary()
        while sign := self._taken(".", "["):
            operand = self._part(operand) if sign == "." else _item(operand, self._closed("]"))
        return operand

    def _closed(self, by: str) -> Expression:
        expression = self.expression()
        self.expect(by)
        return expression

    def _part(self, operand: Expression) -> Expression:
        """Parses the field, method or macro after a dot."""
        name = self._name()
        if not self._taken("("):
            return _Member(operand, name)
        if name in _MACROS:
            item = self._name()
            self.expect(",")
            return _MACROS[name](operand, item, self._closed(")"))
        return _method(name, operand, self._listed(")"))

    def _name(self) -> str:
        kind, text = self._remaining.pop()
        if kind != "name":
            raise SyntaxError(f"{text!r} where a name is needed")
        return text

    def _listed(self, end: str) -> list[Expression]:
        expressions: list[Expression] = []
        while not self._taken(end):
            expressions.append(self.expression())
            if not self._taken(","):
                self.expect(end)
                break
        return expressions

    def _primary(self) -> Expression:
        kind, text = self._remaining.pop()
        match kind, text:
            case (("text" | "number"), _):
                return _constant(ast.literal_eval(text))
            case "sign", "(":
                return self._closed(")")
            case "sign", "[":
                elements = self._listed("]")
                return lambda variables: [element(variables) for element in elements]
            case "name", "has":
                self.expect("(")
                return _has(self._closed(")"))
            case "name", _ if text in _WORDS:
                return _constant(_WORDS[text])
            case "name", _ if self._taken("("):
                if text not in _FUNCTIONS:
                    raise SyntaxError(f"there is no function {text}")
                return _called(_FUNCTIONS[text], *self._listed(")"))
            case "name", _:
                return _variable(text)
        raise SyntaxError(f"{text!r} is not understood")
