"""Translates what is done to requests: headers, rewrites, redirects, CORS, timeouts and retries."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.routes import (
    HTTPPathModifier,
    HTTPRequestRedirectFilter,
    HTTPRouteFilter,
    HTTPRouteRetry,
    HTTPRouteTimeouts,
    HTTPURLRewriteFilter,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.values import cors, duration, header_edits, is_host, milliseconds, retried

_CODES: Final = (301, 302, 303, 307, 308)
_HOST: Final = ("host", ":authority")


class IstioHeaders(NamedTuple):
    filters: tuple[HTTPRouteFilter, ...]
    authority: str = ""
    """The Host that a request gets."""


def headers(reader: FieldReader) -> IstioHeaders:
    """Returns the header edits of a route or destination."""
    found: list[HTTPRouteFilter] = []
    authority = ""
    for key, kind in (("request", "RequestHeaderModifier"), ("response", "ResponseHeaderModifier")):
        edits = reader.child(key)
        values = [edits.text_map(each) for each in ("set", "add")]
        for each in values if key == "request" else ():
            for name in [name for name in each if name.lower() in _HOST]:
                authority = each.pop(name)
        replaced, added = values
        if dynamic := sorted({name for each in values for name, value in each.items() if "%" in value}):
            text = f"Envoy's variables in {', '.join(dynamic)[:120]} are sent as they are written"
            reader.note(Category.CHANGED, "header-variables", text, key)
        written = header_edits(kind, added, replaced, edits.texts("remove"))
        found += written.filters
        if written.refused:
            reader.note(Category.CANNOT, "headers", f"cannot be edited: {', '.join(written.refused)[:200]}", key)
    return IstioHeaders(tuple(found), authority)


class IstioRewrite(NamedTuple):
    uri: str = ""
    authority: str = ""


def rewrite(reader: FieldReader) -> IstioRewrite:
    reader.cannot("uriRegexRewrite", "paths cannot be rewritten by a regular expression; the path stays as it is")
    return IstioRewrite(reader.text("uri"), reader.text("authority"))


def url_rewrite(reader: FieldReader, wanted: IstioRewrite, authority: str, prefix: str | None) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite of path and Host for one match, whose `prefix` is replaced; None: the whole path is."""
    hostname = bare_host(wanted.authority or authority)
    if hostname and not is_host(hostname):
        reader.note(Category.CANNOT, "rewrite-authority", f"{hostname[:100]} cannot be a Host, and is not set")
        hostname = ""
    path = None
    if wanted.uri and prefix is None:
        path = HTTPPathModifier("ReplaceFullPath", replace_full_path=wanted.uri)
    elif wanted.uri and prefix is not None:
        path = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=wanted.uri)
        if wanted.uri.endswith("/") and not prefix.endswith("/"):
            text = f"{prefix}/x became {wanted.uri}/x, with two slashes; it becomes {wanted.uri}x now"
            reader.note(Category.CHANGED, "rewrite-slash", text, severity=NoteSeverity.INFO)
    if not hostname and path is None:
        return ()
    return (HTTPRouteFilter("URLRewrite", url_rewrite=HTTPURLRewriteFilter(hostname, path)),)


def bare_host(authority: str) -> str:
    """Returns a Host without its port."""
    return authority.partition(":")[0].lower()


def redirect(reader: FieldReader, prefix: str | None) -> HTTPRouteFilter:
    code = reader.integer("redirectCode") or 301
    if code not in _CODES:
        reader.note(Category.CHANGED, "redirect-code", f"{code} cannot be written; 301 is used", "redirectCode")
        code = 301
    uri, replaced, scheme = reader.text("uri"), reader.text("prefixRewrite"), reader.text("scheme").lower()
    authority = reader.text("authority")
    reader.ignore("derivePort")
    host, _, port = authority.partition(":")
    number = reader.integer("port") or (int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0)
    path = None
    if replaced and prefix is not None:
        path = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=replaced)
    elif uri or replaced:
        path = HTTPPathModifier("ReplaceFullPath", replace_full_path=uri or replaced)
    found = HTTPRequestRedirectFilter(
        scheme=scheme if scheme in ("http", "https") else "",
        hostname=host.lower() if is_host(host.lower()) else "",
        path=path,
        port=number if 0 < number < 65536 else 0,
        status_code=code,
    )
    return HTTPRouteFilter("RequestRedirect", request_redirect=found)


def cors_filter(reader: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    """Returns the CORS filter of a `corsPolicy`."""
    origins = list(reader.texts("allowOrigin"))
    patterns = []
    for each in reader.children("allowOrigins"):
        if "exact" in each:
            origins.append(each.text("exact"))
        else:
            patterns.append(str(each.raw("prefix") or each.raw("regex") or ""))
    age = milliseconds(reader.text("maxAge") or "x")
    reader.ignore("unmatchedPreflights")
    found = cors(
        origins,
        reader.texts("allowMethods"),
        reader.texts("allowHeaders"),
        reader.texts("exposeHeaders"),
        None if age is None else age // 1000,
        reader.boolean("allowCredentials"),
    )
    if refused := [*patterns, *found.refused]:
        text = f"cannot be written, and is not allowed any more: {', '.join(refused)[:200]}"
        reader.note(Category.CANNOT, "cors", text)
    return (found.filter,) if found.filter else ()


class Times(NamedTuple):
    timeouts: HTTPRouteTimeouts
    retry: HTTPRouteRetry | None


NO_TIMES: Final = Times(HTTPRouteTimeouts(), None)


def times(route: FieldReader) -> Times:
    """Returns timeouts and retries of a route."""
    request = _duration(route, "timeout")
    if "retries" not in route:
        text = (
            "Istio retried twice where the connection failed or the backend refused; the new gateway tries one other "
            "endpoint, and only if nothing was sent"
        )
        note = "If you want more, write retry."
        route.ignore("retries")
        route.note(Category.CHANGED, "retries-dropped", text, remedy=note, severity=NoteSeverity.INFO)
        return Times(HTTPRouteTimeouts(request), None)
    reader = route.child("retries")
    attempts = max(0, min(reader.integer("attempts") or 0, 100))
    tried, backoff = _duration(reader, "perTryTimeout"), _duration(reader, "backoff")
    on = [each.strip() for each in reader.text("retryOn").split(",") if each.strip()]
    reader.ignore("retryRemoteLocalities", "retryIgnorePreviousHosts")
    if not attempts:
        return Times(HTTPRouteTimeouts(request, tried), HTTPRouteRetry(attempts=0))
    found = retried(on)
    if found.refused:
        text = f"cannot be a reason to retry: {', '.join(found.refused)[:200]}"
        reader.note(Category.CANNOT, "retry-on", text, "retryOn")
    if tried and request and (milliseconds(tried) or 0) > (milliseconds(request) or 0) > 0:
        tried = request
    return Times(HTTPRouteTimeouts(request, tried), HTTPRouteRetry(found.codes, attempts, backoff))


def _duration(reader: FieldReader, key: str) -> str:
    text = reader.text(key)
    found = milliseconds(text) if text else None
    if text and found is None:
        reader.note(Category.CANNOT, "duration", "is no duration, and is left out", key)
    return "" if found is None else duration(found)
