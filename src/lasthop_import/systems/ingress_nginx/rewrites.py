"""Translates paths: nginx's locations, regular expressions, and rewrite-target.

As soon as one Ingress of a host uses regular expressions, or a rewrite-target other than the path, all paths of that host
become case-insensitive regular expressions that need only match the beginning [template.go buildLocation].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPPathModifier
from lasthop_import.model import PathKind, PathMatch

_REPLACED: Final = re.compile(r"(?P<prefix>/[A-Za-z0-9/_.~%-]*?)(?P<between>\(/\|\$\)|/\??(?=\()|)(?P<rest>\(\.[*+]\))\$?")
"""A prefix, and the rest as a group: /x(/|$)(.*), the idiom of the documentation, /x/(.*), /x/?(.*) or /x(.*)."""
_GROUP: Final = re.compile(r"\$\d")


class IngressRewrite(NamedTuple):
    path: PathMatch
    modifier: HTTPPathModifier | None = None
    changes: tuple[tuple[str, str], ...] = ()
    """The differences: a reason in kebab-case, and a text."""
    lost: str = ""
    """Why rewrite-target cannot be carried over."""


def location(path: str, path_type: str, regex: bool) -> IngressRewrite:
    if not regex:
        kinds = {"Exact": PathKind.EXACT, "Prefix": PathKind.SEGMENT}
        return IngressRewrite(PathMatch(kinds.get(path_type, PathKind.STRING), path))
    if path == "/" and path_type != "Exact":
        return IngressRewrite(PathMatch(PathKind.SEGMENT, "/"))
    pattern = f"(?i){path}.*"
    text = f"the host uses regular expressions, so the path was ~* ^{path}: matched without case, at the beginning"
    return IngressRewrite(PathMatch(PathKind.REGEX, pattern), changes=(("regex-rewritten", text),))


def rewritten(path: str, path_type: str, target: str) -> IngressRewrite:
    found = _REPLACED.fullmatch(path)
    group = "$2" if found and found["between"].startswith("(") else "$1"
    if found and target.endswith(group) and not _GROUP.search(target[: -len(group)]):
        return _prefix(found["prefix"].rstrip("/"), found["between"], found["rest"], target[: -len(group)])
    plain = location(path, path_type, regex=True)
    if _GROUP.search(target):
        return plain._replace(lost=f"replaces parts of {path} by a regular expression, which a rewrite cannot")
    return plain._replace(modifier=HTTPPathModifier("ReplaceFullPath", replace_full_path=target))


def _prefix(prefix: str, between: str, rest: str, replacement: str) -> IngressRewrite:
    """Returns that a prefix is replaced, by whole segments and with one slash before the rest; nothing if it stays."""
    wanted = replacement.rstrip("/") or "/"
    match = PathMatch(PathKind.SEGMENT, prefix or "/")
    modifier = None if wanted == match.value else HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=wanted)
    return IngressRewrite(match, modifier, tuple(_changes(prefix, between, rest, replacement)))


def _changes(prefix: str, between: str, rest: str, replacement: str) -> Iterator[tuple[str, str]]:
    """Yields how a prefix of whole segments differs from the expression that nginx had."""
    if prefix:
        yield "case-sensitive-now", f"the path was matched without case; it is the prefix {prefix} now"
    if prefix and between in ("/?", ""):
        yield "prefix-narrowed", f"{prefix}bar was matched, too; it is not any more"
    if prefix and (between == "/" or "+" in rest):
        short = prefix if between == "/" else f"{prefix}/"
        yield "prefix-widened", f"{short} was not matched, and is now"
    after = replacement + ("/x" if between == "" and prefix else "x")
    now = f"{replacement.rstrip('/')}/x"
    if after != now:
        yield "rewrite-joined", f"{prefix}/x became {after}; it becomes {now}"
    elif prefix and between != "/" and replacement.endswith("/") and replacement != "/":
        yield "rewrite-joined", f"{prefix} became {replacement}; it becomes {replacement.rstrip('/')}"
