"""Translates annotations to filters: headers, CORS, redirects, sessions, mirrors, external authentication."""

from __future__ import annotations

import re
from typing import Final

from lasthop.base.api.routes import (
    HTTPCORSFilter,
    HTTPHeader,
    HTTPHeaderFilter,
    HTTPPathModifier,
    HTTPRouteFilter,
    HTTPRouteRetry,
    SessionPersistence,
)
from lasthop_import.ingresses import Annotations
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import Auth, HopTLS, ImportedHop, ImportedMirror
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.systems.ingress_nginx.ingresses import Ingress
from lasthop_import.urls import ServiceURL, redirect_to, service_url
from lasthop_import.values import METHODS, ORIGIN, REDIRECT_CODES, cookie_sessions, url_rewrite

CORS_METHODS: Final = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
CORS_HEADERS: Final = (
    "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"
)

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def rewrite(annotations: Annotations, modifier: HTTPPathModifier | None) -> tuple[HTTPRouteFilter, ...]:
    """Returns the rewrite of path and Host, which share one filter."""
    hostname = annotations.text("upstream-vhost").lower()
    if "$" in hostname:
        annotations.note(Category.CANNOT, "upstream-vhost", "nginx variables have no equivalent", "upstream-vhost")
        hostname = ""
    return url_rewrite(hostname, modifier)


def headers(inputs: Inputs, ingress: Ingress, hsts: str) -> list[HTTPRouteFilter]:
    annotations = ingress.annotations
    filters: list[HTTPRouteFilter] = []
    if prefix := annotations.text("x-forwarded-prefix"):
        edit = HTTPHeaderFilter(set=(HTTPHeader("X-Forwarded-Prefix", prefix),))
        filters.append(HTTPRouteFilter("RequestHeaderModifier", request_header_modifier=edit))
    added = [HTTPHeader("Strict-Transport-Security", hsts)] if hsts else []
    if config_map := annotations.text("custom-headers"):
        namespace, _, name = config_map.rpartition("/")
        data = inputs.data("ConfigMap", namespace or ingress.namespace, name)
        if data is None:
            absent = inputs.absence("ConfigMap", namespace or ingress.namespace, name)
            text = f"the ConfigMap {absent}, so the headers are not known"
            annotations.note(Category.TODO, "custom-headers", text, "custom-headers", remedy="Add it to the input.")
        else:
            added += [HTTPHeader(key, value.decode(errors="replace")) for key, value in sorted(data.items())]
    if added:
        edit = HTTPHeaderFilter(set=tuple(added[:16]))
        filters.append(HTTPRouteFilter("ResponseHeaderModifier", response_header_modifier=edit))
    return filters


def cors(annotations: Annotations) -> list[HTTPRouteFilter]:
    origin, methods, allowed = (annotations.text(f"cors-allow-{name}") for name in ("origin", "methods", "headers"))
    credentials = annotations.boolean("cors-allow-credentials", True)
    exposed, age = annotations.text("cors-expose-headers"), annotations.number("cors-max-age", 1728000)
    if not annotations.boolean("enable-cors"):
        return []
    origins = _listed(origin or "*", ORIGIN)
    origins = ("*",) if "*" in origins else origins
    if len(origins) < len(_split(origin)):
        text = "some origins cannot be written, and are left out"
        annotations.note(Category.CANNOT, "cors-origin", text, "cors-allow-origin")
    allowed_methods = tuple(method for method in _split(methods or CORS_METHODS) if method in (*METHODS, "*"))
    cors_filter = HTTPCORSFilter(
        allow_origins=origins,
        allow_credentials=credentials,
        allow_methods=("*",) if "*" in allowed_methods else allowed_methods,
        allow_headers=_listed(allowed or CORS_HEADERS, _TOKEN),
        expose_headers=_listed(exposed, _TOKEN),
        max_age=max(1, min(age, 2**31 - 1)),
    )
    return [HTTPRouteFilter("CORS", cors=cors_filter)]


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _listed(text: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    return tuple(value for value in _split(text) if pattern.fullmatch(value))[:64]


def redirect(annotations: Annotations) -> list[HTTPRouteFilter]:
    for name, code_name, default in (
        ("permanent-redirect", "permanent-redirect-code", 301),
        ("temporal-redirect", "temporal-redirect-code", 302),
    ):
        code = annotations.number(code_name, default)
        if name not in annotations:
            continue
        url = annotations.text(name)
        redirect_filter = redirect_to(url, code if code in REDIRECT_CODES else default)
        if redirect_filter is not None:
            if redirect_filter.path is not None:
                note_query(annotations, name)
            return [HTTPRouteFilter("RequestRedirect", request_redirect=redirect_filter)]
        text = "the address has variables, a query or no host, and cannot be written; requests go to the backend"
        annotations.note(Category.CANNOT, name, text, name, severity=NoteSeverity.HIGH)
    return []


def note_query(annotations: Annotations, name: str) -> None:
    text = "the query of a request was dropped from the new address; it is kept now"
    annotations.note(Category.CHANGED, "redirect-keeps-query", text, name, severity=NoteSeverity.INFO)


def retry(annotations: Annotations) -> HTTPRouteRetry | None:
    """Returns a retry policy without attempts if the annotation turns retries off."""
    off = annotations.text("proxy-next-upstream") == "off"
    return HTTPRouteRetry(attempts=0) if off else None


def sessions(annotations: Annotations) -> SessionPersistence | None:
    kind = annotations.text("affinity")
    name = annotations.text("session-cookie-name", "INGRESSCOOKIE")
    path, age = annotations.text("session-cookie-path", "/"), annotations.number("session-cookie-max-age", 0)
    if kind != "cookie":
        return None
    if not _TOKEN.fullmatch(name):
        annotations.note(Category.CANNOT, "affinity-dropped", "the cookie's name cannot be written", "session-cookie-name")
        return None
    return cookie_sessions(name, path, f"{min(age, 99999)}s" if age > 0 else "")


def mirrors(annotations: Annotations) -> tuple[ImportedMirror, ...]:
    if "mirror-target" not in annotations:
        return ()
    url = annotations.text("mirror-target")
    service = service_url(url.removesuffix("$request_uri"))
    if service is None or service.path not in ("", "/"):
        annotations.note(
            Category.CANNOT, "mirror-target", "only a Service, with the request's own path, can be a mirror", "mirror-target"
        )
        return ()
    return (ImportedMirror(_hop(annotations, "mirror-target", service)),)


def external_auth(annotations: Annotations) -> Auth | None:
    """Returns the server that authorizes requests. A server outside the cluster cannot be carried over."""
    response_headers = annotations.text("auth-response-headers")
    if "auth-url" not in annotations:
        return None
    service = service_url(annotations.text("auth-url"))
    if service is None:
        text = "only a Service of the cluster can authorize requests; no server authorizes them now"
        annotations.note(Category.ACCESS_CONTROL, "auth-url", text, "auth-url")
        return None
    if service.path not in ("", "/"):
        text = f"the server received requests for {service.path}; now this precedes the request's own path"
        annotations.note(Category.CHANGED, "auth-path", text, "auth-url", remedy="Let the server accept all paths below it.")
    hop = _hop(annotations, "auth-url", service)
    return Auth(hop, path=service.path if service.path != "/" else "", response_headers=_listed(response_headers, _TOKEN))


def _hop(annotations: Annotations, name: str, service: ServiceURL) -> ImportedHop:
    tls = HopTLS(OldLevel.UNVERIFIED, f"nginx never verifies the server of {name}") if service.tls else None
    return ImportedHop(annotations.source(name), service.backend, tls)
