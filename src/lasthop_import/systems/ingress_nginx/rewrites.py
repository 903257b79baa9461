"""Translates paths: nginx's locations, regular expressions, and rewrite-target.

As soon as one Ingress of a host uses regular expressions, or a rewrite-target other than the path, all paths of that host
become case-insensitive regular expressions that need only match the beginning [template.go buildLocation].
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPPathModifier
from lasthop_import.model import PathKind, PathMatch

_STRIP: Final = re.compile(r"(?P<prefix>/[A-Za-z0-9/_.~%-]*?)/?\(/\|\$\)\(\.\*\)\$?")
"""The idiom of the documentation: /x(/|$)(.*) with /$2."""
_TAIL: Final = re.compile(r"(?P<prefix>/[A-Za-z0-9/_.~%-]*?)/?\??\(\.[*+]\)\$?")
"""/x/(.*), or /x/?(.*), with /$1."""
_GROUP: Final = re.compile(r"\$\d")


class IngressRewrite(NamedTuple):
    path: PathMatch
    modifier: HTTPPathModifier | None = None
    reason: str = ""
    """What is different, in kebab-case."""
    text: str = ""
    lost: str = ""
    """Why rewrite-target cannot be carried over."""


def location(path: str, path_type: str, regex: bool) -> IngressRewrite:
    """Returns the match of a path without a rewrite."""
    if not regex:
        kinds = {"Exact": PathKind.EXACT, "Prefix": PathKind.SEGMENT}
        return IngressRewrite(PathMatch(kinds.get(path_type, PathKind.STRING), path))
    if path == "/" and path_type != "Exact":
        return IngressRewrite(PathMatch(PathKind.SEGMENT, "/"))
    pattern = f"(?i){path}.*"
    text = f"the host uses regular expressions, so the path was ~* ^{path}: matched without case, at the beginning"
    return IngressRewrite(PathMatch(PathKind.REGEX, pattern), reason="regex-rewritten", text=text)


def rewritten(path: str, path_type: str, target: str) -> IngressRewrite:
    """Returns match and rewrite of a path with rewrite-target."""
    for pattern, group in ((_STRIP, "$2"), (_TAIL, "$1")):
        found = pattern.fullmatch(path)
        if found and target.endswith(group) and not _GROUP.search(target[: -len(group)]):
            return _prefix(found["prefix"] or "/", target[: -len(group)])
    plain = location(path, path_type, regex=True)
    if _GROUP.search(target):
        return plain._replace(lost=f"replaces parts of {path} by a regular expression, which a rewrite cannot")
    return plain._replace(modifier=HTTPPathModifier("ReplaceFullPath", replace_full_path=target))


def _prefix(prefix: str, replacement: str) -> IngressRewrite:
    """Returns that a prefix is replaced; nothing if it stays the same."""
    wanted = replacement.rstrip("/") or "/"
    prefix = prefix.rstrip("/") or "/"
    match = PathMatch(PathKind.SEGMENT, prefix)
    text = f"the path was matched without case; it is the prefix {prefix} now"
    if wanted == prefix:
        return IngressRewrite(match, reason="case-sensitive-now" if prefix != "/" else "", text=text)
    modifier = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=wanted)
    return IngressRewrite(match, modifier, "case-sensitive-now" if prefix != "/" else "", text)
