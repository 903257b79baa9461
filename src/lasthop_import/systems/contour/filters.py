"""Translates what a route does to requests: headers, rewrites, redirects, CORS, timeouts, retries, sessions."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.routes import (
    CookieConfig,
    HTTPPathModifier,
    HTTPRequestRedirectFilter,
    HTTPRouteFilter,
    HTTPRouteRetry,
    HTTPRouteTimeouts,
    HTTPURLRewriteFilter,
    SessionPersistence,
)
from lasthop_import.model import PathKind, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.values import cors, duration, header_edits, is_host, milliseconds, retried

COOKIE: Final = "X-Contour-Session-Affinity"
_BALANCED: Final = ("", "RoundRobin", "WeightedLeastRequest", "Random")


class ContourHeaders(NamedTuple):
    filters: tuple[HTTPRouteFilter, ...]
    host: str = ""
    """The Host that requests get."""


def headers(reader: FieldReader) -> ContourHeaders:
    """Returns the header edits of a route or service."""
    found: list[HTTPRouteFilter] = []
    host = ""
    for key, kind in (
        ("requestHeadersPolicy", "RequestHeaderModifier"),
        ("responseHeadersPolicy", "ResponseHeaderModifier"),
    ):
        policy = reader.child(key)
        values = {each.text("name"): each.text("value") for each in policy.children("set")}
        for name in [name for name in values if name.lower() == "host" and key == "requestHeadersPolicy"]:
            host = values.pop(name).lower()
        if dynamic := sorted(name for name, value in values.items() if "%" in value):
            text = f"variables in {', '.join(dynamic)[:120]} are sent as they are written"
            reader.note(Category.CHANGED, "header-variables", text, key)
        written = header_edits(kind, {}, values, policy.texts("remove"))
        found += written.filters
        if written.refused:
            reader.note(Category.CANNOT, "headers", f"cannot be edited: {', '.join(written.refused)[:200]}", key)
    if host and not is_host(host):
        reader.note(Category.CANNOT, "host-rewrite", f"{host[:100]} cannot be a Host, and is not set", "requestHeadersPolicy")
        host = ""
    return ContourHeaders(tuple(found), host)


def rewrite(route: FieldReader, path: PathMatch, host: str) -> list[HTTPRouteFilter]:
    """Returns the rewrite of path and Host: the replacement of exactly this prefix, or the one for any."""
    modifier = None
    entries = route.child("pathRewritePolicy").children("replacePrefix")
    choices = {each.text("prefix"): each.text("replacement") for each in entries}
    wanted = choices.get(path.value, choices.get(""))
    if wanted is not None and path.kind is PathKind.STRING:
        modifier = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=wanted or "/")
    elif choices:
        route.note(
            Category.CHANGED,
            "rewrite-not-used",
            "names no prefix of the route's, so that nothing was replaced",
            "pathRewritePolicy",
        )
    if not host and modifier is None:
        return []
    return [HTTPRouteFilter("URLRewrite", url_rewrite=HTTPURLRewriteFilter(host, modifier))]


def host_rewrite(host: str) -> tuple[HTTPRouteFilter, ...]:
    return (HTTPRouteFilter("URLRewrite", url_rewrite=HTTPURLRewriteFilter(host)),) if host else ()


def redirect(reader: FieldReader, path: PathMatch) -> HTTPRouteFilter:
    code, port = reader.integer("statusCode") or 302, reader.integer("port") or 0
    whole, prefix = reader.text("path"), reader.text("prefix")
    host, scheme = reader.text("hostname").lower(), reader.text("scheme")
    modifier = None
    if whole:
        modifier = HTTPPathModifier("ReplaceFullPath", replace_full_path=whole)
    elif prefix and path.kind is PathKind.STRING:
        modifier = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=prefix)
    found = HTTPRequestRedirectFilter(
        scheme=scheme if scheme in ("http", "https") else "",
        hostname=host if is_host(host) else "",
        path=modifier,
        port=port if 0 < port < 65536 else 0,
        status_code=code if code in (301, 302, 303, 307, 308) else 302,
    )
    return HTTPRouteFilter("RequestRedirect", request_redirect=found)


def cors_filter(host: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    if "corsPolicy" not in host:
        return ()
    reader = host.child("corsPolicy")
    age = milliseconds(reader.text("maxAge") or "x")
    found = cors(
        reader.texts("allowOrigin"),
        reader.texts("allowMethods"),
        reader.texts("allowHeaders"),
        reader.texts("exposeHeaders"),
        None if age is None else age // 1000,
        reader.boolean("allowCredentials"),
    )
    reader.cannot("allowPrivateNetwork", "requests from private networks are not answered specially")
    if found.refused:
        text = f"cannot be written, and is not allowed any more: {', '.join(found.refused)[:200]}"
        reader.note(Category.CANNOT, "cors", text)
    return (found.filter,) if found.filter else ()


def timeouts(route: FieldReader) -> HTTPRouteTimeouts:
    """Returns the timeout; Envoy's 15 s where none is written."""
    reader = route.child("timeoutPolicy")
    text = reader.text("response")
    for key in ("idle", "idleConnection"):
        reader.cannot(key, "idle timeouts are the new gateway's own")
    if not text:
        route.note(
            Category.CHANGED,
            "default-timeout",
            "a response may take 15 s, which is Envoy's default",
            severity=NoteSeverity.INFO,
        )
        return HTTPRouteTimeouts("15s")
    found = 0 if text in ("infinity", "infinite") else milliseconds(text)
    if found is None:
        reader.note(Category.CANNOT, "duration", "is no duration, and is left out", "response")
        return HTTPRouteTimeouts()
    return HTTPRouteTimeouts(duration(found))


def retry(route: FieldReader) -> HTTPRouteRetry | None:
    if "retryPolicy" not in route:
        return None
    reader = route.child("retryPolicy")
    count = reader.integer("count")
    on = reader.texts("retryOn") or ("5xx",)
    found = retried(on)
    codes = [*found.codes]
    values = reader.raw("retriableStatusCodes")
    codes += [code for code in values if isinstance(code, int) and 400 <= code <= 599] if isinstance(values, list) else []
    if found.refused:
        reader.note(Category.CANNOT, "retry-on", f"cannot be a reason to retry: {', '.join(found.refused)[:200]}", "retryOn")
    reader.cannot("perTryTimeout", "one try has no timeout of its own")
    if count == -1:
        return HTTPRouteRetry(attempts=0)
    return HTTPRouteRetry(tuple(dict.fromkeys(codes)), max(1, min(count or 1, 100)))


def sessions(route: FieldReader) -> SessionPersistence | None:
    reader = route.child("loadBalancerPolicy")
    strategy = reader.text("strategy")
    reader.cannot("requestHashPolicies", "requests are not distributed by a hash")
    if strategy == "Cookie":
        return SessionPersistence("Cookie", CookieConfig(COOKIE))
    if strategy not in _BALANCED:
        reader.note(Category.CANNOT, "balancing", "the new gateway balances in its own way", "strategy")
    return None
