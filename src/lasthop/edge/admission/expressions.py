"""The part of CEL that the rules of the CRDs use, as Python functions.

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
"""Of the variables."""
ERRORS: Final = (ArithmeticError, LookupError, TypeError, ValueError)
"""An expression that cannot be evaluated."""


def compiled(text: str) -> Expression:
    """Raises SyntaxError for what no rule of the CRDs uses."""
    parser = _Parser(text)
    found = parser.expression()
    parser.expect("")
    return found


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


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _contains(item: Any, container: Any) -> bool:
    return any(_same(item, each) for each in _typed(container, list, dict))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(one: Any, other: Any) -> bool:
        if type(one) is not type(other) and {type(one), type(other)} != {int, float}:
            raise TypeError("no order between these")
        return compare(one, other)

    return compared


def _sum(one: Any, other: Any) -> int:
    return int(_typed(one, int) + _typed(other, int))


_RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": _same,
    "!=": lambda one, other: not _same(one, other),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
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
"""Of texts."""


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


def _chosen(condition: Expression, one: Expression, other: Expression) -> Expression:
    return lambda variables: one(variables) if _true(condition(variables)) else other(variables)


def _called(function: Callable[..., Any], *arguments: Expression) -> Expression:
    match arguments:
        case (only,):
            return lambda variables: function(only(variables))
        case (one, other):
            return lambda variables: function(one(variables), other(variables))
    raise SyntaxError("no function has so many arguments")


class _Member(msgspec.Struct, frozen=True):
    of: Expression
    name: str

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        return _typed(self.of(variables), dict)[self.name]


def _item(of: Expression, key: Expression) -> Expression:
    def item(variables: Mapping[str, Any]) -> Any:
        value, place = _typed(of(variables), list, dict), key(variables)
        if type(value) is list and _typed(place, int) < 0:
            raise IndexError("below 0")
        return value[place]

    return item


def _has(field: Expression) -> Expression:
    if not isinstance(field, _Member):
        raise SyntaxError("has() tests a field")
    return lambda variables: field.name in _typed(field.of(variables), dict)


def _some(of: Expression, name: str, holds: Expression, decides: bool) -> Expression:
    """Builds `exists`, which is decided by an item for which it holds, or `all`, by one for which it does not."""

    def some(variables: Mapping[str, Any]) -> bool:
        failed: Exception | None = None
        for each in _typed(of(variables), list, dict):
            try:
                if _true(holds({**variables, name: each})) is decides:
                    return decides
            except ERRORS as error:
                failed = error
        if failed:
            raise failed
        return not decides

    return some


def _filtered(of: Expression, name: str, holds: Expression) -> Callable[[Mapping[str, Any]], list[Any]]:
    return lambda variables: [each for each in _typed(of(variables), list, dict) if _true(holds({**variables, name: each}))]


def _exactly_one(of: Expression, name: str, holds: Expression) -> Expression:
    filtered = _filtered(of, name, holds)
    return lambda variables: len(filtered(variables)) == 1


_MACROS: Final[Mapping[str, Callable[[Expression, str, Expression], Expression]]] = {
    "all": lambda of, name, holds: _some(of, name, holds, decides=False),
    "exists": lambda of, name, holds: _some(of, name, holds, decides=True),
    "exists_one": _exactly_one,
    "filter": _filtered,
}


def _method(name: str, of: Expression, arguments: list[Expression]) -> Expression:
    if name == "size":
        return _called(_size, of)
    if name not in _METHODS:
        raise SyntaxError(f"there is no method {name}")
    method = _METHODS[name]
    return lambda variables: method(_text(of(variables)), *[each(variables) for each in arguments])


# --- text ------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"""\s*(?: (?P<text> r?(?: \"{3}(?:.|\n)*?\"{3} | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) )"""
    r"""| (?P<number> \d+ ) | (?P<name> [A-Za-z_]\w* ) | (?P<sign> \|\| | && | [=!<>]= | [-!<>+?:.,()\[\]] ) )""",
    re.VERBOSE,
)
_WORDS: Final = {"true": True, "false": False, "null": None}


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None:
            raise SyntaxError(f"{text[place : place + 20]!r} is not understood")
        yield found.lastgroup or "", found[found.lastgroup or 0]
        place = found.end()
    yield "end", ""


class _Parser:
    """Reads an expression from left to right, one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._rest = list(_tokens(text))[::-1]

    def _taken(self, *signs: str) -> str:
        """Takes the next token if it is one of these."""
        kind, text = self._rest[-1]
        return self._rest.pop()[1] if text in signs and kind in ("sign", "name") else ""

    def expect(self, sign: str) -> None:
        kind, text = self._rest.pop()
        if text != sign or kind == "text":
            raise SyntaxError(f"{text!r} where {sign!r} is needed")

    def expression(self) -> Expression:
        found = self._either()
        if not self._taken("?"):
            return found
        one = self.expression()
        self.expect(":")
        return _chosen(found, one, self.expression())

    def _either(self) -> Expression:
        found = self._both()
        while self._taken("||"):
            found = _decided(found, self._both(), by=True)
        return found

    def _both(self) -> Expression:
        found = self._relation()
        while self._taken("&&"):
            found = _decided(found, self._relation(), by=False)
        return found

    def _relation(self) -> Expression:
        found = self._addition()
        while sign := self._taken(*_RELATIONS):
            found = _called(_RELATIONS[sign], found, self._addition())
        return found

    def _addition(self) -> Expression:
        found = self._negation()
        while self._taken("+"):
            found = _called(_sum, found, self._negation())
        return found

    def _negation(self) -> Expression:
        if self._taken("!"):
            return _called(lambda value: not _true(value), self._negation())
        found: Expression = self._primary()
        while sign := self._taken(".", "["):
            found = self._part(found) if sign == "." else _item(found, self._closed("]"))
        return found

    def _closed(self, by: str) -> Expression:
        found = self.expression()
        self.expect(by)
        return found

    def _part(self, of: Expression) -> Expression:
        """Reads what follows a dot: a field, a method or a macro."""
        name = self._name()
        if not self._taken("("):
            return _Member(of, name)
        if name in _MACROS:
            item = self._name()
            self.expect(",")
            return _MACROS[name](of, item, self._closed(")"))
        return _method(name, of, self._listed(")"))

    def _name(self) -> str:
        kind, text = self._rest.pop()
        if kind != "name":
            raise SyntaxError(f"{text!r} where a name is needed")
        return text

    def _listed(self, end: str) -> list[Expression]:
        found: list[Expression] = []
        while not self._taken(end):
            found.append(self.expression())
            if not self._taken(","):
                self.expect(end)
                break
        return found

    def _primary(self) -> Expression:
        kind, text = self._rest.pop()
        match kind, text:
            case (("text" | "number"), _):
                return _constant(ast.literal_eval(text))
            case "sign", "(":
                return self._closed(")")
            case "sign", "[":
                listed = self._listed("]")
                return lambda variables: [each(variables) for each in listed]
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
