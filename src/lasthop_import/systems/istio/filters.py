"""Translates the filters of a route: headers, rewrites, redirects, CORS, timeouts and retries."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPRouteFilter, HTTPRouteRetry, HTTPRouteTimeouts
from lasthop_import.filters import allowed_origins, edited_headers, note_variables, retried_codes
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.values import (
    REDIRECT_CODES,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    cors,
    duration,
    full_path,
    is_host,
    milliseconds,
    port_number,
    prefix_path,
    redirect,
    url_rewrite,
)

_HOST: Final = ("host", ":authority")


class IstioHeaders(NamedTuple):
    filters: tuple[HTTPRouteFilter, ...]
    authority: str = ""
    """The new Host of a request."""


def headers(reader: FieldReader) -> IstioHeaders:
    filters: list[HTTPRouteFilter] = []
    authority = ""
    for key, kind in (("request", REQUEST_HEADERS), ("response", RESPONSE_HEADERS)):
        edits = reader.child(key)
        replaced, added = edits.text_map("set"), edits.text_map("add")
        if key == "request":
            authority = next(iter([*_take_authority(added), *_take_authority(replaced)]), "")
        note_variables(reader, key, "Envoy's variables", replaced, added)
        filters += edited_headers(reader, key, kind, added, replaced, edits.texts("remove"))
    return IstioHeaders(tuple(filters), authority)


def _take_authority(edits: dict[str, str]) -> list[str]:
    """Removes the Host from the edits of headers, and returns its values, the last first, because the last counts."""
    return [edits.pop(name) for name in list(edits) if name.lower() in _HOST][::-1]


class IstioRewrite(NamedTuple):
    uri: str = ""
    authority: str = ""


def rewrite(reader: FieldReader) -> IstioRewrite:
    if "uriRegexRewrite" in reader:
        text = "Gateway API rewrites no path by a regular expression; the backend gets it as it is"
        reader.note(Category.CANNOT, "regex-rewrite", text, "uriRegexRewrite", severity=NoteSeverity.HIGH)
    return IstioRewrite(reader.text("uri"), reader.text("authority"))


def path_and_host(
    reader: FieldReader, istio_rewrite: IstioRewrite, authority: str, prefix: str | None
) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite of path and Host for one match. `prefix` is the replaced prefix; None replaces the whole path."""
    hostname = bare_host(istio_rewrite.authority or authority)
    if hostname and not is_host(hostname):
        reader.note(Category.CANNOT, "rewrite-authority", f"{hostname[:100]} cannot be a Host, and is not set")
        hostname = ""
    if not istio_rewrite.uri:
        return url_rewrite(hostname)
    if prefix is None:
        return url_rewrite(hostname, full_path(istio_rewrite.uri))
    if istio_rewrite.uri.endswith("/") and not prefix.endswith("/"):
        text = f"{prefix}/x became {istio_rewrite.uri}/x, with two slashes; it becomes {istio_rewrite.uri}x now"
        reader.note(Category.CHANGED, "rewrite-slash", text, severity=NoteSeverity.INFO)
    return url_rewrite(hostname, prefix_path(istio_rewrite.uri))


def bare_host(authority: str) -> str:
    return authority.partition(":")[0].lower()


def redirect_filter(reader: FieldReader, prefix: str | None) -> HTTPRouteFilter:
    code = reader.integer("redirectCode") or 301
    if code not in REDIRECT_CODES:
        reader.note(Category.CHANGED, "redirect-code", f"{code} cannot be written; 301 is used", "redirectCode")
    uri, replaced, scheme = reader.text("uri"), reader.text("prefixRewrite"), reader.text("scheme").lower()
    host, _, port = reader.text("authority").partition(":")
    reader.ignore("derivePort")
    path = None
    if replaced and prefix is not None:
        path = prefix_path(replaced)
    elif uri or replaced:
        path = full_path(uri or replaced)
    return redirect(scheme, host.lower(), path, reader.integer("port") or port_number(port), code, usual=301)


def cors_filter(reader: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    origins = list(reader.texts("allowOrigin"))
    patterns = []
    for origin in reader.children("allowOrigins"):
        if "exact" in origin:
            origins.append(origin.text("exact"))
        else:
            patterns.append(str(origin.raw("prefix") or origin.raw("regex") or ""))
    age = milliseconds(reader.text("maxAge") or "x")
    reader.ignore("unmatchedPreflights")
    methods, allowed, exposed = map(reader.texts, ("allowMethods", "allowHeaders", "exposeHeaders"))
    seconds = None if age is None else age // 1000
    return allowed_origins(
        reader, cors(origins, methods, allowed, exposed, seconds, reader.boolean("allowCredentials")), patterns
    )


class Times(NamedTuple):
    timeouts: HTTPRouteTimeouts
    retry: HTTPRouteRetry | None


NO_TIMES: Final = Times(HTTPRouteTimeouts(), None)


def times(route: FieldReader) -> Times:
    request = _duration(route, "timeout")
    if "retries" not in route:
        text = (
            "Istio retried twice where the connection failed or the backend refused; the new gateway tries one other "
            "endpoint, and only if nothing was sent"
        )
        route.ignore("retries")
        route.note(
            Category.CHANGED, "retries-dropped", text, remedy="If you want more, write retry.", severity=NoteSeverity.INFO
        )
        return Times(HTTPRouteTimeouts(request), None)
    return _retries(route.child("retries"), request)


def _retries(reader: FieldReader, request: str) -> Times:
    """Returns the retries. The timeout of a try is at most the timeout of the request."""
    attempts = max(0, min(reader.integer("attempts") or 0, 100))
    per_try, backoff = _duration(reader, "perTryTimeout"), _duration(reader, "backoff")
    on = [condition.strip() for condition in reader.text("retryOn").split(",") if condition.strip()]
    reader.ignore("retryRemoteLocalities", "retryIgnorePreviousHosts")
    if not attempts:
        return Times(HTTPRouteTimeouts(request, per_try), HTTPRouteRetry(attempts=0))
    codes = retried_codes(reader, "retryOn", on)
    if per_try and request and (milliseconds(per_try) or 0) > (milliseconds(request) or 0) > 0:
        per_try = request
    return Times(HTTPRouteTimeouts(request, per_try), HTTPRouteRetry(codes, attempts, backoff))


def _duration(reader: FieldReader, key: str) -> str:
    text = reader.text(key)
    length = milliseconds(text) if text else None
    if text and length is None:
        reader.note(Category.CANNOT, "duration", "is not a duration, and is left out", key)
    return "" if length is None else duration(length)
