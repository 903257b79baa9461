"""Translates what a Mapping does to requests: headers, rewrites, redirects, CORS, timeouts, retries, sessions."""

from __future__ import annotations

from typing import Any, Final

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
from lasthop_import.systems.emissary.services import scheme
from lasthop_import.values import TOKEN, cors, duration, header_edits, is_host, milliseconds, retried

DEFAULT_TIMEOUT: Final = 3000
CODES: Final = (301, 302, 303, 307, 308)


def headers(spec: FieldReader) -> list[HTTPRouteFilter]:
    """Returns the header edits; a value with `append: false` replaces the header."""
    found: list[HTTPRouteFilter] = []
    for direction, kind in (("request", "RequestHeaderModifier"), ("response", "ResponseHeaderModifier")):
        key = f"add_{direction}_headers"
        added: dict[str, str] = {}
        replaced: dict[str, str] = {}
        odd: list[str] = []
        for name, value in sorted(spec.mapping(key).items()):
            append, text = (value.get("append", True), value.get("value")) if isinstance(value, dict) else (True, value)
            if not isinstance(text, str) or (isinstance(value, dict) and not value.keys() <= {"append", "value"}):
                odd.append(name)
            else:
                (added if append else replaced)[name] = text
        removed = _texts(spec, f"remove_{direction}_headers")
        written = header_edits(kind, added, replaced, removed)
        found += written.filters
        if refused := [*odd, *written.refused]:
            spec.note(Category.CANNOT, "headers", f"cannot be edited: {', '.join(refused)[:200]}", key)
        if any("%" in value for value in (*added.values(), *replaced.values())):
            spec.note(Category.CHANGED, "header-variables", "Envoy's variables are sent as they are written", key)
    return found


def _texts(spec: FieldReader, key: str) -> tuple[str, ...]:
    """Returns a list of texts that may be written as one."""
    value = spec.value.get(key)
    return (spec.text(key),) if isinstance(value, str) else spec.texts(key)


def rewrite(spec: FieldReader, path: PathMatch, hostname: str) -> list[HTTPRouteFilter]:
    """Returns the rewrite of path and Host. Without `rewrite`, the prefix is replaced by a slash."""
    target = spec.text("rewrite", "/")
    if "rewrite" in spec and spec.value.get("rewrite") == "":
        target = ""
    modifier = None
    if "regex_rewrite" in spec:
        text = "paths cannot be rewritten by a regular expression; the path stays as it is"
        spec.note(Category.CANNOT, "regex-rewrite", text, "regex_rewrite", severity=NoteSeverity.HIGH)
    elif target and target != path.value and path.kind is PathKind.EXACT:
        modifier = HTTPPathModifier("ReplaceFullPath", replace_full_path=target)
    elif target and target != path.value and path.kind is PathKind.STRING:
        modifier = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=target)
    elif target and path.kind is PathKind.REGEX and not spec.value.get("prefix_regex"):
        spec.note(Category.CANNOT, "rewrite", "a prefix without case cannot be rewritten; the path stays as it is", "prefix")
    host = spec.text("host_rewrite").lower() or hostname
    if host and not is_host(host):
        spec.note(Category.CANNOT, "host-rewrite", "cannot be a Host, and is not set", "host_rewrite")
        host = ""
    if not host and modifier is None:
        return []
    return [HTTPRouteFilter("URLRewrite", url_rewrite=HTTPURLRewriteFilter(host, modifier))]


def redirect(spec: FieldReader, path: PathMatch) -> list[HTTPRouteFilter]:
    """Returns the redirect of a Mapping with host_redirect, whose service is the new host."""
    code = spec.integer("redirect_response_code") or 301
    whole, prefix = spec.text("path_redirect"), spec.text("prefix_redirect")
    spec.cannot("regex_redirect", "paths cannot be redirected by a regular expression")
    target = spec.text("service")
    host, _, port = target.partition("://")[2].partition(":") if "://" in target else target.partition(":")
    modifier = None
    if prefix and path.kind is PathKind.STRING:
        modifier = HTTPPathModifier("ReplacePrefixMatch", replace_prefix_match=prefix)
    elif whole or prefix:
        modifier = HTTPPathModifier("ReplaceFullPath", replace_full_path=whole or prefix)
    spoken = scheme(target)
    found = HTTPRequestRedirectFilter(
        scheme=spoken if spoken in ("http", "https") else "",
        hostname=host.lower() if is_host(host.lower()) else "",
        path=modifier,
        port=int(port) if port.isascii() and port.isdigit() and 0 < int(port) < 65536 else 0,
        status_code=code if code in CODES else 301,
    )
    return [HTTPRouteFilter("RequestRedirect", request_redirect=found)]


def cors_filter(spec: FieldReader) -> list[HTTPRouteFilter]:
    if "cors" not in spec:
        return []
    reader = spec.child("cors")
    lists = {key: _split(reader, key) for key in ("origins", "methods", "headers", "exposed_headers")}
    age = reader.raw("max_age")
    seconds = (
        int(age) if isinstance(age, str | int) and str(age).isascii() and str(age).isdigit() and len(str(age)) < 12 else None
    )
    found = cors(
        lists["origins"] or ("*",),
        lists["methods"],
        lists["headers"],
        lists["exposed_headers"],
        seconds,
        reader.boolean("credentials"),
    )
    if found.refused:
        reader.note(
            Category.CANNOT, "cors", f"cannot be written, and is not allowed any more: {', '.join(found.refused)[:200]}"
        )
    return [found.filter] if found.filter else []


def _split(reader: FieldReader, key: str) -> tuple[str, ...]:
    """Returns a list, which older versions write as one text with commas."""
    value: Any = reader.value.get(key)
    return tuple(reader.text(key).split(",")) if isinstance(value, str) else reader.texts(key)


def timeouts(spec: FieldReader) -> HTTPRouteTimeouts:
    wanted = spec.integer("timeout_ms")
    if wanted is None:
        text = "a request may take 3 s, which is Emissary's default"
        spec.note(Category.CHANGED, "default-timeout", text, severity=NoteSeverity.INFO)
    return HTTPRouteTimeouts(duration(max(0, min(DEFAULT_TIMEOUT if wanted is None else wanted, 99_999_000))))


def retry(spec: FieldReader) -> HTTPRouteRetry | None:
    if "retry_policy" not in spec:
        return None
    reader = spec.child("retry_policy")
    attempts = max(0, min(reader.integer("num_retries", 1) or 0, 100))
    on = [each.strip() for each in reader.text("retry_on").split(",") if each.strip()]
    tried = milliseconds(reader.text("per_try_timeout") or "x")
    if tried is not None:
        reader.note(Category.CANNOT, "per-try-timeout", "one try has no timeout of its own", "per_try_timeout")
    found = retried(on)
    if found.refused:
        reader.note(Category.CANNOT, "retry-on", f"cannot be a reason to retry: {', '.join(found.refused)[:200]}", "retry_on")
    return HTTPRouteRetry(found.codes if attempts else (), attempts)


def sessions(spec: FieldReader) -> SessionPersistence | None:
    """Returns sessions by a cookie; other ways to balance are not carried over."""
    if "load_balancer" not in spec:
        return None
    reader = spec.child("load_balancer")
    cookie = reader.child("cookie")
    name, path, ttl = cookie.text("name"), cookie.text("path", "/"), milliseconds(cookie.text("ttl") or "x")
    for key in ("policy", "header", "source_ip"):
        if key != "policy" or not name:
            reader.cannot(key, "the new gateway balances in its own way")
    reader.ignore("policy")
    if not name or not TOKEN.fullmatch(name):
        return None
    if ttl is None or ttl < 1000:
        return SessionPersistence("Cookie", CookieConfig(name, path))
    return SessionPersistence("Cookie", CookieConfig(name, path, "Permanent"), absolute_timeout=duration(ttl // 1000 * 1000))
