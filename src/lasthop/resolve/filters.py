"""Filters of an HTTPRoute: what is done to a request on its way, and which requests for it cannot be met."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.api.routes import HTTPHeaderFilter, HTTPPathModifier, HTTPRouteFilter
from lasthop.plan import reasons
from lasthop.plan.routing import Cors, HeaderEdit, Headers, PathEdit, PathType, Redirect, Rewrite, RouteProblem
from lasthop.resolve.external_auth import problems as external_auth_problems
from lasthop.resolve.header_names import HEADER_NAME, PROTECTED


class Filters(msgspec.Struct, frozen=True):
    """The filters of one rule, or of one backendRef, folded into what they do."""

    headers: Headers = Headers()
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    cors: Cors | None = None


def fold(filters: tuple[HTTPRouteFilter, ...], match_path: str, path_type: PathType) -> Filters:
    headers, redirect, rewrite, cors = Headers(), None, None, None
    for found in filters:
        if found.request_header_modifier:
            headers = msgspec.structs.replace(headers, request=_edit(found.request_header_modifier))
        elif found.response_header_modifier:
            headers = msgspec.structs.replace(headers, response=_edit(found.response_header_modifier))
        elif found.request_redirect:
            wanted = found.request_redirect
            path = _path(wanted.path, match_path, path_type)
            redirect = Redirect(wanted.status_code, wanted.scheme, wanted.hostname.lower(), wanted.port, path)
        elif found.url_rewrite:
            path = _path(found.url_rewrite.path, match_path, path_type)
            rewrite = Rewrite(found.url_rewrite.hostname.lower(), path)
        elif found.cors:
            c = found.cors
            cors = Cors(c.allow_origins, c.allow_methods, c.allow_headers, c.expose_headers, c.allow_credentials, c.max_age)
    return Filters(headers, redirect, rewrite, cors)


def _edit(wanted: HTTPHeaderFilter) -> HeaderEdit:
    return HeaderEdit(
        tuple((h.name, h.value) for h in wanted.set),
        tuple((h.name, h.value) for h in wanted.add),
        wanted.remove,
    )


def one_after_the_other(first: Headers, second: Headers) -> Headers:
    return Headers(_both(first.request, second.request), _both(first.response, second.response))


def _both(first: HeaderEdit, second: HeaderEdit) -> HeaderEdit:
    """In one edit nothing is said twice about a header, but that it is emptied first and then added to."""
    decided = {name.lower() for name in (*(name for name, _ in second.set), *second.remove)}
    kept = HeaderEdit(
        tuple(pair for pair in first.set if pair[0].lower() not in decided),
        tuple(pair for pair in first.add if pair[0].lower() not in decided),
        tuple(name for name in first.remove if name.lower() not in decided),
    )
    return HeaderEdit(kept.set + second.set, kept.add + second.add, kept.remove + second.remove)


def _path(modifier: HTTPPathModifier | None, match_path: str, path_type: PathType) -> PathEdit | None:
    if modifier is None:
        return None
    if modifier.type == "ReplaceFullPath":
        return PathEdit(_absolute(modifier.replace_full_path))
    return PathEdit(_absolute(modifier.replace_prefix_match), match_path if path_type is PathType.PREFIX else None)


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def problems(filters: tuple[HTTPRouteFilter, ...], field: str, *, on_backend: bool = False) -> Iterator[RouteProblem]:
    """What cannot be done. Whoever asks for it gets a 500 for that rule, not a route without it."""
    for number, found in enumerate(filters):
        place = f"{field}[{number}]"
        if found.extension_ref:
            ref = found.extension_ref
            message = f"kind {ref.kind} of group {ref.group!r} is no filter that Lasthop knows; remove it"
            yield RouteProblem(reasons.INVALID_KIND, message, f"{place}.extensionRef")
        elif found.type not in _SERVED or (on_backend and found.type not in _SERVED_ON_BACKENDS):
            where = "on a backendRef" if on_backend else "here"
            yield RouteProblem(reasons.UNSUPPORTED_VALUE, f"filter {found.type} is not supported {where}; remove it", place)
        elif found.type == EXTERNAL_AUTH:
            yield from external_auth_problems(found.external_auth, f"{place}.externalAuth")
        for edit in (found.request_header_modifier, found.response_header_modifier):
            yield from _header_problems(edit, place) if edit else ()
        for change in (found.request_redirect, found.url_rewrite):
            yield from _path_problems(change.path, place) if change and change.path else ()
    if sum(f.type == EXTERNAL_AUTH for f in filters) > 1:
        yield RouteProblem(reasons.INCOMPATIBLE_FILTERS, "a request is authorized once; keep one ExternalAuth filter", field)
    if {"RequestRedirect", "RequestMirror"} <= {f.type for f in filters}:
        message = "a request that is redirected cannot be mirrored too; remove RequestMirror or RequestRedirect"
        yield RouteProblem(reasons.INCOMPATIBLE_FILTERS, message, field)


def _header_problems(edit: HTTPHeaderFilter, place: str) -> Iterator[RouteProblem]:
    names = Counter(name.lower() for name in (*(h.name for h in (*edit.set, *edit.add)), *edit.remove))
    for name, times in names.items():
        if name in PROTECTED or not HEADER_NAME.fullmatch(name):
            remedy = "use a URLRewrite filter" if name == "host" else "remove it"
            yield RouteProblem(reasons.UNSUPPORTED_VALUE, f"header {name!r} cannot be edited; {remedy}", place)
        elif times > 1:
            # HTTPHeaderFilter: only one action for a header name is permitted.
            message = f"header {name!r} is edited {times} times, and what comes of that is not defined; say it once"
            yield RouteProblem(reasons.INCOMPATIBLE_FILTERS, message, place)


def _path_problems(modifier: HTTPPathModifier, place: str) -> Iterator[RouteProblem]:
    path = modifier.replace_full_path or modifier.replace_prefix_match
    if not _PATH.fullmatch(path):
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, f"{path!r} is no path (RFC 3986); escape or remove what is not", place)


_PATH: Final = re.compile(r"(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*")


EXTERNAL_AUTH: Final = "ExternalAuth"
_SERVED: Final = frozenset(
    {
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "CORS",
        EXTERNAL_AUTH,
    }
)
_SERVED_ON_BACKENDS: Final = frozenset({"RequestHeaderModifier", "ResponseHeaderModifier", "URLRewrite"})
