"""Translates annotations and header actions, and lists settings without an equivalent."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lasthop.base.api.routes import (
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPRouteFilter,
    HTTPRouteTimeouts,
    SessionPersistence,
)
from lasthop_import.filters import joined
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.openshift.backend_tls import PASSTHROUGH
from lasthop_import.systems.openshift.routes import OpenShiftRoute
from lasthop_import.values import TOKEN, cookie_sessions, duration, header_edits, milliseconds, prefix_path, url_rewrite

PREFIX: Final = "haproxy.router.openshift.io/"
OWN: Final = "router.openshift.io/"
ACCESS_CONTROL: Final = {
    f"{PREFIX}ip_allowlist": "only these client addresses had access; Gateway API has no IP allowlists",
    f"{PREFIX}ip_whitelist": "only these client addresses had access; Gateway API has no IP allowlists",
    f"{PREFIX}rate-limit-connections": "requests of one client were limited",
    f"{PREFIX}rate-limit-connections.concurrent-tcp": "belongs to rate-limit-connections",
    f"{PREFIX}rate-limit-connections.rate-http": "belongs to rate-limit-connections",
    f"{PREFIX}rate-limit-connections.rate-tcp": "belongs to rate-limit-connections",
}
CANNOT: Final = {
    f"{PREFIX}balance": "the new gateway balances in its own way",
    f"{PREFIX}timeout-tunnel": "a tunnel cannot have a separate timeout",
    f"{PREFIX}set-forwarded-headers": "X-Forwarded-For and its kin are the gateway's own",
    f"{PREFIX}pod-concurrent-connections": "connections to one Pod were limited",
    f"{PREFIX}h1-adjust-case": "headers are written in lower case",
    f"{OWN}cookie-same-site": "the cookie's SameSite cannot be set",
    f"{OWN}haproxy.health.check.interval": "Pods are not probed by the gateway; Kubernetes does that",
}
_TRUE: Final = ("true", "TRUE", "1", "yes")
_HSTS: Final = re.compile(
    r"(?i)(?:(?:includeSubDomains|preload)\s*;\s*)*max-age\s*=\s*(?:\d+|\"\d+\")(?:\s*;\s*(?:includeSubDomains|preload))*"
)


class AnnotationSettings(NamedTuple):
    """The settings of a Route's annotations."""

    filters: tuple[HTTPRouteFilter, ...] = ()
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    persistence: SessionPersistence | None = None


def read_annotations(route: OpenShiftRoute) -> AnnotationSettings:
    annotations = route.annotations
    for key, text in ACCESS_CONTROL.items():
        annotations.access_control(key, text)
    for key, text in CANNOT.items():
        annotations.cannot(key, text)
    annotations.ignore("openshift.io/host.generated")
    filters = [*_headers(route), *_hsts(route), *_rewrite(route)]
    return AnnotationSettings(joined(filters), _timeouts(annotations), _sessions(route))


def _hsts(route: OpenShiftRoute) -> list[HTTPRouteFilter]:
    value = route.annotations.text(f"{PREFIX}hsts_header").strip()
    if not value or not route.tls:
        return []
    if not _HSTS.fullmatch(value):
        text = "is not a valid header, so the router did not send it"
        route.annotations.note(Category.CHANGED, "hsts-ignored", text, f"{PREFIX}hsts_header")
        return []
    edit = HTTPHeaderFilter(set=(HTTPHeader("Strict-Transport-Security", value),))
    return [HTTPRouteFilter("ResponseHeaderModifier", response_header_modifier=edit)]


def _rewrite(route: OpenShiftRoute) -> list[HTTPRouteFilter]:
    key = f"{PREFIX}rewrite-target"
    target = route.annotations.text(key).strip()
    if not target:
        return []
    path = route.path or "/"
    cut, _, tail = target.partition("#")
    if tail or "#" in target or not cut.startswith("/") or route.exact:
        text = "cannot be written; the path stays as it is"
        route.annotations.note(Category.CANNOT, "rewrite-target", text, key, severity=NoteSeverity.HIGH)
        return []
    if target != "/" and path.endswith("/") != target.endswith("/"):
        text = f"the router put {target} for the text {path}; whole segments are replaced now"
        route.annotations.note(Category.CHANGED, "rewrite-slash", text, key)
    if target == path:
        return []
    return [*url_rewrite(path=prefix_path(target))]


def _timeouts(annotations: FieldReader) -> HTTPRouteTimeouts:
    key = f"{PREFIX}timeout"
    value = annotations.text(key).strip()
    if not value:
        return HTTPRouteTimeouts()
    days = re.fullmatch(r"([0-9]{1,5})d", value)
    timeout = int(days[1]) * 86_400_000 if days else milliseconds(f"{value}ms" if value.isdigit() else value)
    if not timeout:
        annotations.note(Category.CANNOT, "timeout", "is not a time that can be written", key)
        return HTTPRouteTimeouts()
    text = f"{value} was the longest wait for the backend between two reads; it is for the whole request now"
    annotations.note(Category.CHANGED, "timeout-of-the-whole-request", text, key)
    return HTTPRouteTimeouts(request=duration(timeout))


def _sessions(route: OpenShiftRoute) -> SessionPersistence | None:
    """Returns the cookie-based sessions. A router has them unless they are disabled; the import keeps only named cookies."""
    annotations = route.annotations
    disabled, name = annotations.text(f"{PREFIX}disable_cookies").strip(), annotations.text(f"{OWN}cookie_name").strip()
    if disabled in _TRUE or route.termination == PASSTHROUGH:
        return None
    if name and TOKEN.fullmatch(name):
        return cookie_sessions(name)
    text = "the router kept clients with their Pod by a cookie, as it does for all Routes; the new gateway does not"
    route.reader.note(
        Category.CHANGED,
        "affinity-dropped",
        text,
        None,
        remedy=f"If the application needs that, set {OWN}cookie_name, or write sessionPersistence.",
        severity=NoteSeverity.INFO,
    )
    return None


def _headers(route: OpenShiftRoute) -> list[HTTPRouteFilter]:
    if route.document.kind != "Route":
        return []
    actions = route.reader.child("spec").child("httpHeaders").child("actions")
    filters: list[HTTPRouteFilter] = []
    for key, kind in (("request", "RequestHeaderModifier"), ("response", "ResponseHeaderModifier")):
        replaced: dict[str, str] = {}
        removed: list[str] = []
        for header in actions.children(key):
            name, action = header.text("name"), header.child("action")
            value = action.child("set").text("value")
            if action.text("type") == "Delete":
                removed.append(name)
            elif "%[" in value or "%{" in value:
                text = f"{name} is made by an expression of HAProxy, and is left out"
                header.note(Category.CANNOT, "header-expression", text, "action")
            else:
                replaced[name] = value.replace("%%", "%")
        edits = header_edits(kind, {}, replaced, removed)
        if edits.refused:
            actions.note(Category.CANNOT, "headers", f"{', '.join(edits.refused)} cannot be written", None)
        filters += edits.filters
    return filters
