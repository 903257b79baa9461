"""Translates the paths of nginx's locations."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPPathModifier
from lasthop_import.model import PathKind, PathMatch
from lasthop_import.values import full_path, prefix_path

_GROUP: Final = re.compile(r"\$\d")


class NginxLocation(NamedTuple):
    path: PathMatch
    rank: tuple[int, int]
    """The sort key for nginx's order: exact, `^~`, regular expressions in file order, other prefixes; long before short."""


def location(path: str, number: int = 0) -> NginxLocation:
    """Returns the match of a path of a VirtualServer. `number`: its position in the list."""
    if path.startswith("^~"):
        value = path[2:].strip()
        return NginxLocation(PathMatch(PathKind.STRING, value), (1, -len(value)))
    if path.startswith("~"):
        insensitive = path.startswith("~*")
        return NginxLocation(regex(path[2 if insensitive else 1 :].strip(), insensitive), (2, number))
    if path.startswith("="):
        return NginxLocation(PathMatch(PathKind.EXACT, path[1:].strip()), (0, 0))
    return NginxLocation(PathMatch(PathKind.STRING, path), (3, -len(path)))


def regex(pattern: str, insensitive: bool) -> PathMatch:
    """Returns an expression for the whole path. nginx matches the original anywhere in the path."""
    before = "" if pattern.startswith("^") else ".*"
    after = "" if pattern.endswith("$") and not pattern.endswith(r"\$") else ".*"
    inner = pattern.removeprefix("^")
    inner = inner if after else inner[:-1]
    grouped = f"(?:{inner})" if "|" in inner else inner
    return PathMatch(PathKind.REGEX, f"{'(?i)' if insensitive else ''}{before}{grouped}{after}")


class NginxRewrite(NamedTuple):
    modifier: HTTPPathModifier | None = None
    changed: str = ""
    lost: str = ""


def rewritten(path: PathMatch, target: str) -> NginxRewrite:
    """Returns the rewrite of a path. A prefix path rewrites the prefix, all others the whole path."""
    if not target:
        return NginxRewrite()
    if not target.startswith("/") or "$" in _GROUP.sub("", target):
        return NginxRewrite(lost="must begin with a slash, and can have no variables")
    if path.kind in (PathKind.EXACT, PathKind.REGEX):
        if _GROUP.search(target):
            return NginxRewrite(lost="replaces parts of the path by a regular expression, which a rewrite cannot")
        return NginxRewrite(full_path(target))
    changed = ""
    if path.value.endswith("/") != target.endswith("/"):
        tail = f"{path.value.rstrip('/')}/x"
        changed = f"nginx made {target}{tail[len(path.value) :]} of {tail}; it is {target.rstrip('/')}/x now"
    return NginxRewrite(prefix_path(target), changed)
