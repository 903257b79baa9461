"""Filters of an HTTPRoute: converts them into edits of requests, and reports unsupported settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.base.api import routes as api
from lasthop.engine.plan import reasons
from lasthop.engine.plan.limits import Limits
from lasthop.engine.plan.problem import Problem, incompatible_filters, unsupported_value
from lasthop.engine.plan.routing import NO_EDITS, Cors, HeaderEdit, HeaderEdits, PathEdit, PathType, Redirect, Rewrite
from lasthop.engine.resolve.routing import http_syntax as syntax
from lasthop.engine.resolve.routing.external_auth import problems as external_auth_problems


class Filters(msgspec.Struct, frozen=True):
    """The combined effect of the filters of one rule or backendRef."""

    headers: HeaderEdits = NO_EDITS
    redirect: Redirect | None = None
    rewrite: Rewrite | None = None
    cors: Cors | None = None


NO_FILTERS: Final = Filters()


def fold(filters: tuple[api.HTTPRouteFilter, ...], match_path: str, path_type: PathType) -> Filters:
    if not filters:
        return NO_FILTERS
    headers, redirect, rewrite, cors = NO_EDITS, None, None, None
    for filter in filters:
        if filter.request_header_modifier:
            headers = msgspec.structs.replace(headers, request=_edit(filter.request_header_modifier))
        elif filter.response_header_modifier:
            headers = msgspec.structs.replace(headers, response=_edit(filter.response_header_modifier))
        elif filter.request_redirect:
            request_redirect = filter.request_redirect
            path = _path(request_redirect.path, match_path, path_type)
            redirect = Redirect(
                request_redirect.status_code,
                request_redirect.scheme,
                request_redirect.hostname.lower(),
                request_redirect.port,
                path,
            )
        elif filter.url_rewrite:
            path = _path(filter.url_rewrite.path, match_path, path_type)
            rewrite = Rewrite(filter.url_rewrite.hostname.lower(), path)
        elif filter.cors:
            c = filter.cors
            cors = Cors(c.allow_origins, c.allow_methods, c.allow_headers, c.expose_headers, c.allow_credentials, c.max_age)
    return Filters(headers, redirect, rewrite, cors)


def _edit(edit: api.HTTPHeaderFilter) -> HeaderEdit:
    return HeaderEdit(tuple((h.name, h.value) for h in edit.set), tuple((h.name, h.value) for h in edit.add), edit.remove)


def merged_edits(first: HeaderEdits, second: HeaderEdits) -> HeaderEdits:
    return HeaderEdits(_both(first.request, second.request), _both(first.response, second.response))


def _both(first: HeaderEdit, second: HeaderEdit) -> HeaderEdit:
    """Merges two edits so that no header is edited twice, except that a header may be set first and then added to."""
    decided = {name.lower() for name in (*(name for name, _ in second.set), *second.remove)}
    kept = HeaderEdit(
        tuple(pair for pair in first.set if pair[0].lower() not in decided),
        tuple(pair for pair in first.add if pair[0].lower() not in decided),
        tuple(name for name in first.remove if name.lower() not in decided),
    )
    return HeaderEdit(kept.set + second.set, kept.add + second.add, kept.remove + second.remove)


def _path(modifier: api.HTTPPathModifier | None, match_path: str, path_type: PathType) -> PathEdit | None:
    if modifier is None:
        return None
    if modifier.type == "ReplaceFullPath":
        return PathEdit(_absolute(modifier.replace_full_path))
    return PathEdit(_absolute(modifier.replace_prefix_match), match_path if path_type is PathType.PREFIX else None)


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def problems(
    filters: tuple[api.HTTPRouteFilter, ...], field: str, limits: Limits, *, on_backend: bool = False
) -> Iterator[Problem]:
    """Yields unsupported settings. A rule with any of them returns 500, because to ignore the setting would be unsafe."""
    served = _SERVED_ON_BACKENDS if on_backend else _SERVED.keys()
    for number, filter in enumerate(filters):
        place = f"{field}[{number}]"
        if filter.extension_ref:
            ref = filter.extension_ref
            message = f"kind {ref.kind} of group {ref.group!r} is not a filter that Lasthop knows"
            yield Problem(reasons.INVALID_KIND, message, f"{place}.extensionRef", "remove it")
        elif filter.type not in served:
            where = "on a backendRef" if on_backend else "here"
            yield unsupported_value(f"filter {syntax.word(filter.type)} is not supported {where}; remove it", place)
        elif [name for name in _SERVED.values() if getattr(filter, name)] != [_SERVED[filter.type]]:
            yield unsupported_value(
                f"the filter's settings do not match its type {filter.type}; set only matching ones", place
            )
        else:
            yield from _filter_problems(filter, place, limits)
    yield from _combination_problems([f.type for f in filters], field)


def _combination_problems(types: list[str], field: str) -> Iterator[Problem]:
    for type, times in Counter(types).items():
        if times > 1 and type == EXTERNAL_AUTH:
            yield incompatible_filters("a request is authorized once; keep one ExternalAuth filter", field)
        elif times > 1 and type in _SERVED and type != "RequestMirror":
            yield incompatible_filters(f"{times} {type} filters; keep one", field)
    for pair in (("RequestRedirect", "RequestMirror"), ("RequestRedirect", "URLRewrite")):
        if set(pair) <= set(types):
            effect = "mirrored" if "RequestMirror" in pair else "rewritten"
            message = f"a request that is redirected cannot be {effect} too; remove {pair[1]} or RequestRedirect"
            yield incompatible_filters(message, field)


def _filter_problems(filter: api.HTTPRouteFilter, place: str, limits: Limits) -> Iterator[Problem]:
    if auth := filter.external_auth:
        yield from external_auth_problems(auth, f"{place}.externalAuth", limits)
    if mirror := filter.request_mirror:
        yield from _mirror_problems(mirror, f"{place}.requestMirror")
    if redirect := filter.request_redirect:
        yield from _redirect_problems(redirect, f"{place}.requestRedirect")
    if rewrite := filter.url_rewrite:
        yield from _target_problems(rewrite.hostname, rewrite.path, f"{place}.urlRewrite")
    if cors := filter.cors:
        yield from _cors_problems(cors, f"{place}.cors")
    for edit in (filter.request_header_modifier, filter.response_header_modifier):
        yield from _header_problems(edit, place, limits) if edit else ()


def _header_problems(edit: api.HTTPHeaderFilter, place: str, limits: Limits) -> Iterator[Problem]:
    names = Counter(name.lower() for name in (*(h.name for h in (*edit.set, *edit.add)), *edit.remove))
    for name, times in names.items():
        if name in syntax.PROTECTED or not syntax.HEADER_NAME.fullmatch(name):
            remedy = "use a URLRewrite filter" if name == "host" else "remove it"
            yield unsupported_value(f"header {syntax.shown(name)} cannot be edited; {remedy}", place)
        elif times > 1:
            # api.HTTPHeaderFilter: only one action for a header name is permitted.
            message = f"header {name!r} is edited {times} times, and the result is not defined; edit it once"
            yield incompatible_filters(message, place)
    for header in (*edit.set, *edit.add):
        if problem := syntax.value_problem(header.name, header.value, limits):
            yield unsupported_value(problem, place)


def _mirror_problems(mirror: api.HTTPRequestMirrorFilter, place: str) -> Iterator[Problem]:
    if mirror.percent is not None and not 0 <= mirror.percent <= 100:
        yield unsupported_value(f"percent {mirror.percent} is not between 0 and 100", place)
    part = mirror.fraction
    if part and not (part.denominator >= 1 and 0 <= part.numerator <= part.denominator):
        yield unsupported_value(f"fraction {part.numerator}/{part.denominator} is not between 0 and 1", place)


def _redirect_problems(redirect: api.HTTPRequestRedirectFilter, place: str) -> Iterator[Problem]:
    if redirect.scheme and redirect.scheme not in syntax.SCHEMES:
        yield unsupported_value(f"scheme {syntax.word(redirect.scheme)} is not supported; use http or https", place)
    if redirect.status_code not in syntax.REDIRECT_CODES:
        codes = ", ".join(map(str, sorted(syntax.REDIRECT_CODES)))
        yield unsupported_value(f"statusCode {redirect.status_code} is not a redirect; use one of {codes}", place)
    if not 0 <= redirect.port <= syntax.MAX_PORT:
        yield unsupported_value(f"port {redirect.port} is not between 1 and {syntax.MAX_PORT:,}", place)
    yield from _target_problems(redirect.hostname, redirect.path, place)


def _target_problems(hostname: str, path: api.HTTPPathModifier | None, place: str) -> Iterator[Problem]:
    """Yields problems of the target of a redirect or rewrite."""
    if hostname and not syntax.is_hostname(hostname):
        yield unsupported_value(f"{syntax.shown(hostname)} is not a hostname; correct it", f"{place}.hostname")
    if path is None:
        return
    if path.type not in ("ReplaceFullPath", "ReplacePrefixMatch"):
        message = f"type {syntax.word(path.type)} is not supported; use ReplaceFullPath or ReplacePrefixMatch"
        yield unsupported_value(message, f"{place}.path")
    value = path.replace_full_path or path.replace_prefix_match
    if len(value) > syntax.PATH_LENGTH:
        yield unsupported_value(f"a path of {len(value):,} characters; the limit is {syntax.PATH_LENGTH:,}", f"{place}.path")
    elif not syntax.PATH.fullmatch(value):
        yield unsupported_value(
            f"{syntax.shown(value)} is not a path (RFC 3986); escape or remove other characters", f"{place}.path"
        )


def _cors_problems(cors: api.HTTPCORSFilter, place: str) -> Iterator[Problem]:
    """Yields problems of a CORS filter, whose values Envoy copies into responses."""
    for origin in cors.allow_origins:
        if len(origin) > syntax.ORIGIN_LENGTH or not syntax.ORIGIN.fullmatch(origin):
            yield unsupported_value(
                f"{syntax.shown(origin)} is not an origin; write it like https://app.example", f"{place}.allowOrigins"
            )
    for field, names in (
        ("allowMethods", cors.allow_methods),
        ("allowHeaders", cors.allow_headers),
        ("exposeHeaders", cors.expose_headers),
    ):
        yield from (
            unsupported_value(f"{syntax.shown(name)} is not the name of a method or header; remove it", f"{place}.{field}")
            for name in names
            if not syntax.HEADER_NAME.fullmatch(name)
        )
    if not 0 <= cors.max_age <= MAX_AGE:
        yield unsupported_value(f"maxAge {cors.max_age} is not between 1 and {MAX_AGE:,} seconds", f"{place}.maxAge")


EXTERNAL_AUTH: Final = "ExternalAuth"
MAX_AGE: Final = (1 << 31) - 1
_SERVED: Final = {
    "RequestHeaderModifier": "request_header_modifier",
    "ResponseHeaderModifier": "response_header_modifier",
    "RequestMirror": "request_mirror",
    "RequestRedirect": "request_redirect",
    "URLRewrite": "url_rewrite",
    "CORS": "cors",
    EXTERNAL_AUTH: "external_auth",
}
"""Supported filter types, and the field with the settings of each."""
_SERVED_ON_BACKENDS: Final = frozenset({"RequestHeaderModifier", "ResponseHeaderModifier", "URLRewrite"})
