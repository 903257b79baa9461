"""Translates the filters of a Mapping: headers, rewrites, redirects, CORS, timeouts, retries, sessions."""

from __future__ import annotations

from typing import Any, Final

from lasthop.base.api.routes import (
    HTTPPathModifier,
    HTTPRouteFilter,
    HTTPRouteRetry,
    HTTPRouteTimeouts,
    SessionPersistence,
)
from lasthop_import.filters import allowed_origins, edited_headers, retried_codes
from lasthop_import.model import PathKind, PathMatch
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.services import scheme
from lasthop_import.values import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    TOKEN,
    cookie_sessions,
    cors,
    duration,
    full_path,
    is_host,
    is_number,
    milliseconds,
    port_number,
    prefix_path,
    redirect,
    url_rewrite,
)

DEFAULT_TIMEOUT: Final = 3000


def headers(spec: FieldReader) -> list[HTTPRouteFilter]:
    """Returns the header edits; a value with `append: false` replaces the header."""
    edits: list[HTTPRouteFilter] = []
    for direction, kind in (("request", REQUEST_HEADERS), ("response", RESPONSE_HEADERS)):
        key = f"add_{direction}_headers"
        added, replaced, unreadable = dict[str, str](), dict[str, str](), list[str]()
        for name, value in sorted(spec.mapping(key).items()):
            match _header_value(value):
                case None:
                    unreadable.append(name)
                case text, True:
                    added[name] = text
                case text, False:
                    replaced[name] = text
        edits += edited_headers(spec, key, kind, added, replaced, _texts(spec, f"remove_{direction}_headers"), unreadable)
        if any("%" in value for value in (*added.values(), *replaced.values())):
            spec.note(Category.CHANGED, "header-variables", "Envoy's variables are sent as they are written", key)
    return edits


def _header_value(value: Any) -> tuple[str, bool] | None:
    """Returns the value of a header and whether it is appended; None if it cannot be read."""
    written = value if isinstance(value, dict) else {"value": value}
    text = written.get("value")
    if not isinstance(text, str) or not written.keys() <= {"append", "value"}:
        return None
    return text, bool(written.get("append", True))


def _texts(spec: FieldReader, key: str) -> tuple[str, ...]:
    """Returns a list of texts. A single text counts as a list."""
    value = spec.value.get(key)
    return (spec.text(key),) if isinstance(value, str) else spec.texts(key)


def rewrite(spec: FieldReader, path: PathMatch, hostname: str) -> tuple[PathMatch, tuple[HTTPRouteFilter, ...]]:
    """Returns the match of the path, and the rewrite of path and Host. Without `rewrite`, a slash replaces the prefix."""
    path, modifier = _path_rewrite(spec, path)
    host = spec.text("host_rewrite").lower() or hostname
    if host and not is_host(host):
        spec.note(Category.CANNOT, "host-rewrite", "cannot be a Host, and is not set", "host_rewrite")
        host = ""
    return path, url_rewrite(host, modifier)


def _path_rewrite(spec: FieldReader, path: PathMatch) -> tuple[PathMatch, HTTPPathModifier | None]:
    target = spec.text("rewrite", "/")
    if "regex_rewrite" in spec:
        text = "paths cannot be rewritten by a regular expression; the path stays as it is"
        spec.note(Category.CANNOT, "regex-rewrite", text, "regex_rewrite", severity=NoteSeverity.HIGH)
        return path, None
    prefix = spec.text("prefix")
    if not target or (target == prefix and path.kind is not PathKind.REGEX):
        return path, None
    if path.kind is PathKind.REGEX and not spec.boolean("prefix_regex") and not spec.boolean("prefix_exact"):
        text = f"was matched without case; only so can it be replaced by {target[:100]}, and not in other case now"
        spec.note(Category.CHANGED, "case-sensitive-now", text, "prefix")
        path = PathMatch(PathKind.STRING, prefix)
    if path.kind is not PathKind.STRING:
        return path, full_path(target)
    return path, _replaced(spec, "rewrite", prefix, target)


def _replaced(spec: FieldReader, key: str, prefix: str, target: str) -> HTTPPathModifier:
    """Returns the replacement of a prefix. Emissary appends the rest of the path to the target unchanged; Gateway API puts
    exactly one slash between them."""
    if prefix.endswith("/") is not target.endswith("/"):
        after = f"{prefix}x" if prefix.endswith("/") else f"{prefix}/x"
        before, now = target + after.removeprefix(prefix), f"{target.rstrip('/')}/x"
        spec.note(Category.CHANGED, "rewrite-joined", f"{after} became {before}; it becomes {now}", key)
    return prefix_path(target)


def redirect_filter(spec: FieldReader, path: PathMatch) -> HTTPRouteFilter:
    """Returns the redirect of a Mapping with host_redirect, whose service is the new host. `path_redirect` has precedence over
    `prefix_redirect`, which has precedence over `regex_redirect`."""
    code = spec.integer("redirect_response_code") or 301
    whole, prefix = spec.text("path_redirect"), spec.text("prefix_redirect")
    new_path = whole or prefix
    if "regex_redirect" in spec and not new_path:
        text = "paths cannot be redirected by a regular expression; the path stays as it is"
        spec.note(Category.CANNOT, "regex-redirect", text, "regex_redirect", severity=NoteSeverity.HIGH)
    spec.ignore("regex_redirect")
    target = spec.text("service")
    host, _, port = target.split("://", 1)[-1].partition(":")
    modifier = full_path(new_path) if new_path else None
    if prefix and not whole and path.kind is PathKind.STRING:
        modifier = _replaced(spec, "prefix_redirect", path.value, prefix)
    if scheme(target):
        text = "Emissary wrote the service with its scheme after the scheme of the request; it is the new address now"
        spec.note(Category.CHANGED, "redirect-scheme", text, "service", severity=NoteSeverity.INFO)
    return redirect(scheme(target), host.lower(), modifier, port_number(port), code, usual=301)


def cors_filter(spec: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    if "cors" not in spec:
        return ()
    reader = spec.child("cors")
    keys = ("origins", "methods", "headers", "exposed_headers")
    origins, methods, allowed, exposed = (_split(reader, key) for key in keys)
    age = reader.raw("max_age")
    written = str(age) if isinstance(age, str | int) else ""
    seconds = int(written) if is_number(written) and len(written) < 12 else None
    edit = cors(origins or ("*",), methods, allowed, exposed, seconds, reader.boolean("credentials"))
    return allowed_origins(reader, edit)


def _split(reader: FieldReader, key: str) -> tuple[str, ...]:
    """Returns a list. Older API versions write it as one text with commas."""
    value: Any = reader.value.get(key)
    return tuple(reader.text(key).split(",")) if isinstance(value, str) else reader.texts(key)


def timeouts(spec: FieldReader, usual: int | None) -> HTTPRouteTimeouts:
    """Returns the timeout of a Mapping; `usual`: the timeout of the Module."""
    timeout = spec.integer("timeout_ms", usual)
    if timeout is None:
        text = "a request may take 3 s, which is Emissary's default"
        spec.note(Category.CHANGED, "default-timeout", text, severity=NoteSeverity.INFO)
    return HTTPRouteTimeouts(duration(max(0, min(DEFAULT_TIMEOUT if timeout is None else timeout, 99_999_000))))


def retry(spec: FieldReader) -> HTTPRouteRetry | None:
    if "retry_policy" not in spec:
        return None
    reader = spec.child("retry_policy")
    attempts = max(0, min(reader.integer("num_retries", 1) or 0, 100))
    on = [condition.strip() for condition in reader.text("retry_on").split(",") if condition.strip()]
    timeout = milliseconds(reader.text("per_try_timeout") or "x")
    if timeout is not None:
        reader.note(Category.CANNOT, "per-try-timeout", "a try cannot have a separate timeout", "per_try_timeout")
    codes = retried_codes(reader, "retry_on", on)
    return HTTPRouteRetry(codes if attempts else (), attempts)


def sessions(spec: FieldReader) -> SessionPersistence | None:
    """Returns sessions by a cookie. Other load balancing is not carried over."""
    if "load_balancer" not in spec:
        return None
    reader = spec.child("load_balancer")
    cookie = reader.child("cookie")
    name, path, ttl = cookie.text("name"), cookie.text("path", "/"), milliseconds(cookie.text("ttl") or "x")
    for key in ("header", "source_ip") if name else ("policy", "header", "source_ip"):
        reader.cannot(key, "the new gateway balances in its own way")
    reader.ignore("policy")
    if not name or not TOKEN.fullmatch(name):
        return None
    return cookie_sessions(name, path, duration(ttl // 1000 * 1000) if ttl is not None and ttl >= 1000 else "")
