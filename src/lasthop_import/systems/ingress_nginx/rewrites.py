"""Translates paths: nginx's locations, regular expressions, and rewrite-target.

An Ingress that uses regular expressions, or a rewrite-target other than the path, affects all paths of its host. They become
case-insensitive regular expressions that match the beginning of a path [template.go buildLocation].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPPathModifier
from lasthop_import.model import PathKind, PathMatch

_REPLACED: Final = re.compile(r"(?P<prefix>/[A-Za-z0-9/_.~%-]*?)(?P<between>\(/\|\$\)|/\??(?=\()|)(?P<rest>\(\.[*+]\))\$?")
"""A prefix, and the rest as a group: /x(/|$)(.*) (from the documentation), /x/(.*), /x/?(.*) or /x(.*)."""
_GROUP: Final = re.compile(r"\$\d")


class IngressRewrite(NamedTuple):
    path: PathMatch
    modifier: HTTPPathModifier | None = None
    changes: tuple[tuple[str, str], ...] = ()
    """Differences in behaviour: a reason in kebab-case, and a text."""
    lost: str = ""
    """The reason why rewrite-target cannot be carried over."""


def location_match(path: str, path_type: str, regex: bool) -> IngressRewrite:
    if not regex:
        kinds = {"Exact": PathKind.EXACT, "Prefix": PathKind.SEGMENT}
        return IngressRewrite(PathMatch(kinds.get(path_type, PathKind.STRING), path))
    if path == "/" and path_type != "Exact":
        return IngressRewrite(PathMatch(PathKind.SEGMENT, "/"))
    pattern = f"(?i){path}.*"
    text = f"the host uses regular expressions, so the path was ~* ^{path}: matched without case, at the beginning"
    return IngressRewrite(PathMatch(PathKind.REGEX, pattern), changes=(("regex-rewritten", text),))


def rewritten(path: str, path_type: str, target: str) -> IngressRewrite:
    match = _REPLACED.fullmatch(path)
    group = "$2" if match and match["between"].startswith("(") else "$1"
    if match and target.endswith(group) and not _GROUP.search(target[: -len(group)]):
        return _prefix(match["prefix"].rstrip("/"), match["between"], match["rest"], target[: -len(group)])
    plain = location_match(path, path_type, regex=True)
    if _GROUP.search(target):
        return plain._replace(lost=f"replaces parts of {path} by a regular expression, which a rewrite cannot")
    return plain._replace(modifier=HTTPPathModifier("ReplaceFullPath", replace_full_path=target))


def _prefix(prefix: str, between: str, remainder: str, replacement: str) -> IngressRewrite:
    """Replaces a prefix of whole segments, with one slash before the rest. There is no modifier if the prefix stays."""
    new_prefix = replacement.rstrip("/") or "/"
    match = PathMatch(PathKind.SEGMENT, prefix or "/")
    modifier = None if new_prefix == match.value else HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=new_prefix)
    return IngressRewrite(match, modifier, tuple(_changes(prefix, between, remainder, replacement)))


def _changes(prefix: str, between: str, remainder: str, replacement: str) -> Iterator[tuple[str, str]]:
    """Yields the differences between a prefix of whole segments and nginx's expression."""
    if prefix:
        yield "case-sensitive-now", f"the path was matched without case; it is the prefix {prefix} now"
    if prefix and between in ("/?", ""):
        yield "prefix-narrowed", f"{prefix}bar was matched, too; it is not matched now"
    if prefix and (between == "/" or "+" in remainder):
        short = prefix if between == "/" else f"{prefix}/"
        yield "prefix-widened", f"{short} was not matched, and is now"
    after = replacement + ("/x" if between == "" and prefix else "x")
    now = f"{replacement.rstrip('/')}/x"
    if after != now:
        yield "rewrite-joined", f"{prefix}/x became {after}; it becomes {now}"
    elif prefix and between != "/" and replacement.endswith("/") and replacement != "/":
        yield "rewrite-joined", f"{prefix} became {replacement}; it becomes {replacement.rstrip('/')}"
