"""Compares a request with matches of a route, as Envoy does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import re2

from lasthop.engine.plan.request import Request
from lasthop.engine.plan.routing import Match, PathType, ValueMatch
from lasthop.engine.resolve.routing.http_syntax import shown


def fits(match: Match, request: Request) -> bool:
    """Returns whether a match covers a request that `plan.request.normalize` has normalized."""
    return next(misses(match, request), None) is None


def fits_path(match: Match, request: Request) -> bool:
    return next(_path(match, request), None) is None


def misses(match: Match, request: Request) -> Iterator[str]:
    """Describes the parts of a match that the request does not meet."""
    yield from _path(match, request)
    if match.grpc and not request.grpc:
        yield "it is not a gRPC call (content-type application/grpc)"
    if match.method and match.method != request.method:
        yield f"the method is not {match.method}"
    for header in match.headers:
        yield from _value(f"header {header.name}", header, request.values(header.name))
    for parameter in match.query:
        found = request.query(parameter.name)
        yield from _value(f"query parameter {parameter.name}", parameter, [] if found is None else [found])


def _path(match: Match, request: Request) -> Iterator[str]:
    path = request.path
    match match.path_type:
        case PathType.EXACT:
            fitting = path == match.path
        case PathType.PREFIX:
            fitting = match.path == "/" or path == match.path or path.startswith(f"{match.path}/")
        case PathType.REGEX:
            fitting = matches_regex(match.path, path)
    if not fitting:
        yield "the path does not match"


def _value(what: str, wanted: ValueMatch, found: list[str]) -> Iterator[str]:
    if not found:
        yield f"{what} is missing"
    elif wanted.regex and not any(matches_regex(wanted.value, value) for value in found):
        yield f"{what} is {shown(found[0])}, which does not match {shown(wanted.value)}"
    elif not wanted.regex and wanted.value not in found:
        yield f"{what} is {shown(found[0])}, not {shown(wanted.value)}"


def matches_regex(pattern: str, text: str) -> bool:
    """Returns whether the whole text matches. A pattern that RE2 refuses matches nothing, because it is never sent to
    Envoy."""
    compiled = _compiled(pattern)
    return compiled is not None and compiled.fullmatch(text.encode(errors="surrogateescape")) is not None


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re2._Regexp[bytes] | None:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError):
        return None
