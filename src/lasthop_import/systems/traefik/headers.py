"""Reads the headers middleware: edits of headers, CORS, and the security headers that it knows by name."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter
from lasthop_import.notes import Category
from lasthop_import.reader import FieldReader
from lasthop_import.values import cors, header_edits, is_host

_FLAGS: Final = {
    "frameDeny": ("X-Frame-Options", "DENY"),
    "contentTypeNosniff": ("X-Content-Type-Options", "nosniff"),
    "browserXssFilter": ("X-XSS-Protection", "1; mode=block"),
}
_TEXTS: Final = {
    "customFrameOptionsValue": "X-Frame-Options",
    "customBrowserXSSValue": "X-XSS-Protection",
    "contentSecurityPolicy": "Content-Security-Policy",
    "contentSecurityPolicyReportOnly": "Content-Security-Policy-Report-Only",
    "publicKey": "Public-Key-Pins",
    "referrerPolicy": "Referrer-Policy",
    "permissionsPolicy": "Permissions-Policy",
    "featurePolicy": "Feature-Policy",
}
_CANNOT: Final = {
    "isDevelopment": "turned off host checks and redirects, which are not there now either",
    "hostsProxyHeaders": "belongs to allowedHosts",
    "sslProxyHeaders": "belongs to sslRedirect",
    "sslRedirect": "requests without TLS were redirected, and are served now",
    "sslTemporaryRedirect": "belongs to sslRedirect",
    "sslHost": "belongs to sslRedirect",
    "sslForceHost": "belongs to sslRedirect",
    "accessControlAllowOriginListRegex": "origins cannot be regular expressions, and are refused",
}


class HeadersMiddleware(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}
    """Headers to set; empty: to remove."""
    responses: dict[str, str] = {}
    transport_security: str = ""
    """Of responses over TLS."""
    host: str = ""
    cors: HTTPRouteFilter | None = None

    def after(self, later: HeadersMiddleware) -> HeadersMiddleware:
        """Returns both edits, the later one after this."""
        return HeadersMiddleware(
            {**self.requests, **later.requests},
            {**self.responses, **later.responses},
            later.transport_security or self.transport_security,
            later.host or self.host,
            later.cors or self.cors,
        )

    def filters(self, *, secure: bool) -> tuple[HTTPRouteFilter, ...]:
        """Returns the filters for requests with or without TLS."""
        responses = dict(self.responses)
        if secure and self.transport_security:
            responses["Strict-Transport-Security"] = self.transport_security
        found = [*_edited("RequestHeaderModifier", self.requests), *_edited("ResponseHeaderModifier", responses)]
        return (*found, *((self.cors,) if self.cors else ()))


def _edited(kind: str, values: dict[str, str]) -> tuple[HTTPRouteFilter, ...]:
    replaced = {name: value for name, value in values.items() if value}
    return header_edits(kind, {}, replaced, [name for name, value in values.items() if not value]).filters


def read_headers(reader: FieldReader) -> HeadersMiddleware:
    requests, responses = reader.text_map("customRequestHeaders"), reader.text_map("customResponseHeaders")
    host = next((value for name, value in requests.items() if name.lower() == "host"), "").lower()
    requests = {name: value for name, value in requests.items() if name.lower() != "host"}
    if host and not is_host(host):
        reader.note(Category.CANNOT, "host", f"{host[:100]} cannot be written as the Host", "customRequestHeaders")
        host = ""
    for key, (name, value) in _FLAGS.items():
        if reader.boolean(key):
            responses[name] = value
    for key, name in _TEXTS.items():
        if value := reader.text(key):
            responses[name] = value
    for key, values in (("customRequestHeaders", requests), ("customResponseHeaders", responses)):
        replaced = {name: value for name, value in values.items() if value}
        if refused := header_edits("RequestHeaderModifier", {}, replaced, [n for n, v in values.items() if not v]).refused:
            text = f"cannot be set: {', '.join(each[:60] for each in refused)}"
            reader.note(Category.CANNOT, "headers", text, key if key in reader else None)
    for key, text in _CANNOT.items():
        reader.cannot(key, text)
    reader.access_control("allowedHosts", "requests for other hosts were refused")
    seconds = reader.integer("stsSeconds") or 0
    parts = [f"max-age={seconds}"] if seconds > 0 else []
    for key, word in (("stsIncludeSubdomains", "includeSubDomains"), ("stsPreload", "preload")):
        wanted = reader.boolean(key)
        parts += [word] if wanted and parts else []
    forced = reader.boolean("forceSTSHeader")
    security = "; ".join(parts)
    if forced and security:
        responses["Strict-Transport-Security"] = security
    return HeadersMiddleware(requests, responses, "" if forced else security, host, _cors(reader))


def _cors(reader: FieldReader) -> HTTPRouteFilter | None:
    credentials, age = reader.boolean("accessControlAllowCredentials"), reader.integer("accessControlMaxAge")
    names = ("AllowOriginList", "AllowMethods", "AllowHeaders", "ExposeHeaders")
    origins, methods, allowed, exposed = (reader.texts(f"accessControl{name}") for name in names)
    reader.ignore("addVaryHeader")
    if not origins:
        return None
    found = cors(origins, methods, allowed, exposed, age, credentials)
    if found.refused:
        text = f"cannot be written: {', '.join(each[:60] for each in found.refused)}"
        reader.note(Category.CANNOT, "cors", text, "accessControlAllowOriginList")
    return found.filter
