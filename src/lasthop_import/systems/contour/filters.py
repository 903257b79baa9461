"""Translates the filters of a route: headers, rewrites, redirects, CORS, timeouts, retries, sessions."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPRouteFilter, HTTPRouteRetry, HTTPRouteTimeouts, SessionPersistence
from lasthop_import.filters import allowed_origins, edited_headers, note_variables, retried_codes
from lasthop_import.model import PathKind, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.values import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    cookie_sessions,
    cors,
    duration,
    full_path,
    is_host,
    milliseconds,
    prefix_path,
    redirect,
    url_rewrite,
)

COOKIE: Final = "X-Contour-Session-Affinity"
_BALANCED: Final = ("", "RoundRobin", "WeightedLeastRequest", "Random")


class ContourHeaders(NamedTuple):
    filters: tuple[HTTPRouteFilter, ...]
    host: str = ""
    """The Host of the sent requests."""


def headers(reader: FieldReader) -> ContourHeaders:
    requests, responses = reader.child("requestHeadersPolicy"), reader.child("responseHeadersPolicy")
    request_headers, response_headers = _set_headers(requests), _set_headers(responses)
    hosts = [request_headers.pop(name) for name in list(request_headers) if name.lower() == "host"]
    host = hosts[-1].lower() if hosts else ""
    filters: list[HTTPRouteFilter] = []
    for policy, kind, values in (
        (requests, REQUEST_HEADERS, request_headers),
        (responses, RESPONSE_HEADERS, response_headers),
    ):
        key = str(policy.path[-1])
        note_variables(reader, key, "variables", values)
        filters += edited_headers(reader, key, kind, {}, values, policy.texts("remove"))
    if host and not is_host(host):
        reader.note(Category.CANNOT, "host-rewrite", f"{host[:100]} cannot be a Host, and is not set", "requestHeadersPolicy")
        host = ""
    return ContourHeaders(tuple(filters), host)


def _set_headers(policy: FieldReader) -> dict[str, str]:
    return {header.text("name"): header.text("value") for header in policy.children("set")}


def rewrite(route: FieldReader, path: PathMatch, host: str) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite of path and Host: the replacement of exactly this prefix, or the replacement for any prefix."""
    entries = route.child("pathRewritePolicy").children("replacePrefix")
    choices = {entry.text("prefix"): entry.text("replacement") for entry in entries}
    replacement = choices.get(path.value, choices.get(""))
    if replacement is not None and path.kind is PathKind.STRING:
        return url_rewrite(host, prefix_path(replacement or "/"))
    if choices:
        text = "names no prefix of the route's, so that nothing was replaced"
        route.note(Category.CHANGED, "rewrite-not-used", text, "pathRewritePolicy")
    return url_rewrite(host)


def redirect_filter(reader: FieldReader, path: PathMatch) -> HTTPRouteFilter:
    code, port = reader.integer("statusCode") or 302, reader.integer("port") or 0
    whole, prefix = reader.text("path"), reader.text("prefix")
    host, scheme = reader.text("hostname").lower(), reader.text("scheme")
    modifier = None
    if whole:
        modifier = full_path(whole)
    elif prefix and path.kind is PathKind.STRING:
        modifier = prefix_path(prefix)
    return redirect(scheme, host, modifier, port, code)


def cors_filter(host: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    if "corsPolicy" not in host:
        return ()
    reader = host.child("corsPolicy")
    age = milliseconds(reader.text("maxAge") or "x")
    keys = ("allowOrigin", "allowMethods", "allowHeaders", "exposeHeaders")
    origins, methods, allowed, exposed = map(reader.texts, keys)
    edit = cors(origins, methods, allowed, exposed, None if age is None else age // 1000, reader.boolean("allowCredentials"))
    reader.cannot("allowPrivateNetwork", "requests from private networks are not answered specially")
    return allowed_origins(reader, edit)


def response_timeout(text: str) -> int | None:
    """Returns milliseconds; 0 for an infinite timeout, None for a text that is not a duration."""
    return 0 if text in ("infinity", "infinite") else milliseconds(text)


def timeouts(route: FieldReader) -> HTTPRouteTimeouts:
    """Returns the timeout, by default Envoy's 15 s."""
    reader = route.child("timeoutPolicy")
    text = reader.text("response")
    for key in ("idle", "idleConnection"):
        reader.cannot(key, "idle timeouts are the new gateway's own")
    if not text:
        message = "a response may take 15 s, which is Envoy's default"
        route.note(Category.CHANGED, "default-timeout", message, severity=NoteSeverity.INFO)
        return HTTPRouteTimeouts("15s")
    timeout = response_timeout(text)
    if timeout is None:
        reader.note(Category.CANNOT, "duration", "is not a duration, and is left out", "response")
        return HTTPRouteTimeouts()
    return HTTPRouteTimeouts(duration(timeout))


def retry(route: FieldReader) -> HTTPRouteRetry | None:
    if "retryPolicy" not in route:
        return None
    reader = route.child("retryPolicy")
    count = reader.integer("count")
    codes = list(retried_codes(reader, "retryOn", reader.texts("retryOn") or ("5xx",)))
    values = reader.raw("retriableStatusCodes")
    codes += [code for code in values if isinstance(code, int) and 400 <= code <= 599] if isinstance(values, list) else []
    reader.cannot("perTryTimeout", "a try cannot have a separate timeout")
    if count == -1:
        return HTTPRouteRetry(attempts=0)
    return HTTPRouteRetry(tuple(dict.fromkeys(codes)), max(1, min(count or 1, 100)))


def sessions(route: FieldReader) -> SessionPersistence | None:
    reader = route.child("loadBalancerPolicy")
    strategy = reader.text("strategy")
    reader.cannot("requestHashPolicies", "requests are not distributed by a hash")
    if strategy == "Cookie":
        return cookie_sessions(COOKIE)
    if strategy not in _BALANCED:
        reader.note(Category.CANNOT, "balancing", "the new gateway balances in its own way", "strategy")
    return None
