"""Parses the rules of routers into alternatives, each with a host and a match.

    Host(`a.example`) && (PathPrefix(`/x`) || Header(`X-A`, `1`))

The muxer parses Go expressions: `&&` binds tighter than `||`, `!` tightest; arguments are in backticks or quotes.
[pkg/rules/parser.go, pkg/muxer/http/matcher.go, matcher_v2.go]
"""

from __future__ import annotations

import itertools
import re
from typing import Final, NamedTuple

from lasthop_import.model import ImportedMatch, ImportedValueMatch, PathKind, PathMatch
from lasthop_import.values import METHODS, is_host, string_prefix, value_match

MOST: Final = 256
"""The maximum number of alternatives in a rule."""
LONGEST: Final = 20_000
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<op>&&|\|\||!|\(|\)|,)|(?P<name>[A-Za-z]+)|`(?P<raw>[^`]*)`|\"(?P<quoted>(?:[^\"\\]|\\.)*)\")"
)
_VARIABLE: Final = re.compile(r"\{(?:[A-Za-z0-9_]*)(?::(?P<pattern>(?:[^{}]|\{[0-9,]+\})+))?\}")


class Unwritable(Exception):
    """Raised for a rule that no route can express. The text continues a sentence."""


class Term(NamedTuple):
    name: str
    arguments: tuple[str, ...]


class Alternative(NamedTuple):
    host: str
    """Empty means any host."""
    match: ImportedMatch


Conjunction = tuple[Term, ...]


def parsed(rule: str) -> tuple[Conjunction, ...]:
    """Parses a rule into a disjunction of conjunctions."""
    if len(rule) > LONGEST:
        raise Unwritable("the rule is too long")
    parser = _MatchParser(_tokens(rule))
    conjunctions = parser.alternatives()
    if parser.remaining:
        raise Unwritable("the rule cannot be parsed")
    return conjunctions


def alternatives(rule: str, *, v2: bool) -> tuple[Alternative, ...]:
    """Parses a rule into hosts and matches."""
    return tuple(dict.fromkeys(_alternative(single) for conjunction in parsed(rule) for single in _single(conjunction, v2)))


def server_names(rule: str) -> tuple[str, ...]:
    """Returns the server names in a TCP router's rule; empty means any."""
    names: list[str] = []
    for conjunction in parsed(rule):
        for condition in conjunction:
            if condition.name != "HostSNI" or len(conjunction) > 1 or not condition.arguments:
                raise Unwritable(f"{condition.name} cannot be a condition of a connection")
            names += condition.arguments
    return () if "*" in names else tuple(dict.fromkeys(map(_host, names)))


# --- the grammar -----------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(rule: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end = 0, len(rule.rstrip())
    while position < end:
        token = _TOKEN.match(rule, position)
        if token is None:
            raise Unwritable("the rule cannot be parsed")
        position = token.end()
        if token["op"] or token["name"]:
            tokens.append(_Token("op" if token["op"] else "name", token["op"] or token["name"]))
        else:
            raw = token["raw"]
            tokens.append(_Token("text", raw if raw is not None else re.sub(r"\\(.)", r"\1", token["quoted"])))
    return tokens


class _MatchParser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.remaining = tokens[::-1]
        self._depth = 0

    def alternatives(self) -> tuple[Conjunction, ...]:
        conjunctions = self._conjunctions()
        while self._accept("||"):
            conjunctions += self._conjunctions()
        return _bounded(conjunctions)

    def _conjunctions(self) -> tuple[Conjunction, ...]:
        conjunctions = self._operand()
        while self._accept("&&"):
            operand = self._operand()
            conjunctions = _bounded(tuple((*a, *b) for a, b in itertools.product(conjunctions, operand)))
        return conjunctions

    def _operand(self) -> tuple[Conjunction, ...]:
        if self._accept("!"):
            raise Unwritable("a condition is negated")
        if self._accept("("):
            self._depth += 1
            if self._depth > 50:
                raise Unwritable("the rule is nested too deeply")
            conjunctions = self.alternatives()
            self._depth -= 1
            self._expect(")")
            return conjunctions
        name = self._next("name")
        self._expect("(")
        arguments: list[str] = []
        while not self._accept(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._next("text"))
        return ((Term(name, tuple(arguments)),),)

    def _accept(self, text: str) -> bool:
        if self.remaining and self.remaining[-1] == _Token("op", text):
            self.remaining.pop()
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise Unwritable("the rule cannot be parsed")

    def _next(self, kind: str) -> str:
        if not self.remaining or self.remaining[-1].kind != kind:
            raise Unwritable("the rule cannot be parsed")
        return self.remaining.pop().text


def _bounded(conjunctions: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
    if len(conjunctions) > MOST:
        raise Unwritable(f"the rule has more than {MOST} alternatives")
    return conjunctions


# --- conditions ------------------------------------------------------------------------------------------------------

_SEVERAL: Final = ("Host", "Path", "PathPrefix", "Method", "Query", "HostHeader")
"""Matchers with several arguments, which are alternatives in v2."""


def _single(conjunction: Conjunction, v2: bool) -> tuple[Conjunction, ...]:
    """Expands the conditions of v2 with several arguments into alternatives."""
    choices = [
        [Term(term.name, (argument,)) for argument in term.arguments] if v2 and term.name in _SEVERAL else [term]
        for term in conjunction
    ]
    return _bounded(tuple(itertools.product(*choices)))


def _alternative(conditions: Conjunction) -> Alternative:
    hosts: set[str] = set()
    paths: list[PathMatch] = []
    headers: list[ImportedValueMatch] = []
    query: list[ImportedValueMatch] = []
    methods: set[str] = set()
    for name, arguments in conditions:
        match (name, arguments):
            case ("Host" | "HostHeader", (host,)):
                hosts.add(_host(host))
            case ("Path" | "PathPrefix" | "PathRegexp", (path,)):
                paths.append(_path(name, path))
            case ("Method", (method,)):
                methods.add(_method(method))
            case ("Header" | "Headers" | "HeaderRegexp" | "HeadersRegexp", (key, value)):
                headers.append(_value(name, key, value))
            case ("Query", (both,)) if "=" in both:
                key, _, value = both.partition("=")
                query.append(_value(name, key, value))
            case ("Query" | "QueryRegexp", (key, value)):
                query.append(_value(name, key, value))
            case _:
                raise Unwritable(f"{name} with {len(arguments)} arguments has no equivalent")
    if len(hosts) > 1 or len(methods) > 1:
        raise Unwritable("it requires two hosts or methods at once, so it never matched")
    match_ = ImportedMatch(_narrowest(paths), tuple(dict.fromkeys(headers)), tuple(dict.fromkeys(query)), "".join(methods))
    return Alternative("".join(hosts), match_)


def somewhere(pattern: str) -> str:
    """Converts a pattern that matches anywhere in a text to a pattern for the whole text."""
    return f".*(?:{pattern}).*"


def _host(host: str) -> str:
    if not is_host(host.lower()):
        raise Unwritable(f"{host[:100]} cannot be a hostname")
    return host.lower()


def _method(method: str) -> str:
    if method.upper() not in METHODS:
        raise Unwritable(f"{method[:100]} cannot be a method")
    return method.upper()


def _path(name: str, path: str) -> PathMatch:
    if name == "PathRegexp":
        anchored = path.startswith("^") and "|" not in path
        whole = path[1:] if anchored else f".*(?:{path})"
        return PathMatch(PathKind.REGEX, whole[:-1] if anchored and whole.endswith("$") else f"{whole}.*")
    if not path.startswith("/"):
        raise Unwritable(f"the path {path[:100]} does not begin with a slash")
    if _VARIABLE.search(path):
        return PathMatch(PathKind.REGEX, _with_variables(path) + ("" if name == "Path" else ".*"))
    return PathMatch(PathKind.EXACT, path) if name == "Path" else string_prefix(path)


def _with_variables(path: str) -> str:
    """Converts a path of v2 with `{name:pattern}` to a pattern."""
    written, position = "", 0
    for variable in _VARIABLE.finditer(path):
        written += re.escape(path[position : variable.start()]) + f"(?:{variable['pattern'] or '[^/]+'})"
        position = variable.end()
    return written + re.escape(path[position:])


def _value(name: str, key: str, value: str) -> ImportedValueMatch:
    by_regex = name.endswith("Regexp")
    match = value_match(key, "regex", somewhere(value)) if by_regex else value_match(key, "exact", value)
    if match is None:
        raise Unwritable(f"the header or parameter {key[:100]} cannot be compared with that value")
    return match


def _narrowest(paths: list[PathMatch]) -> PathMatch | None:
    """Returns the path that is within all other paths."""
    if not paths:
        return None
    best = max(paths, key=lambda path: (path.kind is PathKind.EXACT, len(path.value)))
    for path in paths:
        within = path.kind is PathKind.STRING and best.kind is not PathKind.REGEX and best.value.startswith(path.value)
        if path != best and not within:
            raise Unwritable("it requires two paths at once")
    return best
