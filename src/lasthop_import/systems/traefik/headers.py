"""Reads the headers middleware: edits of headers, CORS, and security headers with their own fields."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter
from lasthop_import.notes import Category
from lasthop_import.reader import FieldReader
from lasthop_import.values import REQUEST_HEADERS, RESPONSE_HEADERS, HeaderChanges, cors, header_edits, is_host

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
    "sslTemporaryRedirect": "belongs to sslRedirect",
    "sslHost": "belongs to sslRedirect",
    "sslForceHost": "belongs to sslRedirect",
    "accessControlAllowOriginListRegex": "origins cannot be regular expressions, and are refused",
}


class HeadersMiddleware(msgspec.Struct, frozen=True):
    requests: dict[str, str] = {}
    """Headers to set. An empty value removes the header."""
    responses: dict[str, str] = {}
    transport_security: str = ""
    """The value of Strict-Transport-Security, for responses over TLS."""
    host: str = ""
    cors: HTTPRouteFilter | None = None

    def after(self, later: HeadersMiddleware) -> HeadersMiddleware:
        """Returns the combination of this middleware and a later one."""
        return HeadersMiddleware(
            {**self.requests, **later.requests},
            {**self.responses, **later.responses},
            later.transport_security or self.transport_security,
            later.host or self.host,
            later.cors or self.cors,
        )

    def filters(self, *, secure: bool) -> tuple[HTTPRouteFilter, ...]:
        responses = dict(self.responses)
        if secure and self.transport_security:
            responses["Strict-Transport-Security"] = self.transport_security
        requests = _edited(REQUEST_HEADERS, self.requests).filters
        return (*requests, *_edited(RESPONSE_HEADERS, responses).filters, *((self.cors,) if self.cors else ()))


def _edited(kind: str, values: dict[str, str]) -> HeaderChanges:
    replaced = {name: value for name, value in values.items() if value}
    return header_edits(kind, {}, replaced, [name for name, value in values.items() if not value])


def read_headers(reader: FieldReader) -> HeadersMiddleware:
    requests, responses = reader.text_map("customRequestHeaders"), reader.text_map("customResponseHeaders")
    host = _host(reader, requests)
    responses |= {name: value for key, (name, value) in _FLAGS.items() if reader.boolean(key)}
    responses |= {name: value for key, name in _TEXTS.items() if (value := reader.text(key))}
    _note_refused(reader, "customRequestHeaders", requests)
    _note_refused(reader, "customResponseHeaders", responses)
    for key, text in _CANNOT.items():
        reader.cannot(key, text)
    if reader.boolean("sslRedirect"):
        text = "requests without TLS were redirected, and are served now"
        reader.note(Category.LOOSENED, "redirect-lost", text, "sslRedirect", remedy="Redirect with redirectScheme.")
    reader.access_control("allowedHosts", "requests for other hosts were refused")
    forced, security = reader.boolean("forceSTSHeader"), _transport_security(reader)
    if forced and security:
        responses["Strict-Transport-Security"] = security
    return HeadersMiddleware(requests, responses, "" if forced else security, host, _cors(reader))


def _host(reader: FieldReader, requests: dict[str, str]) -> str:
    """Removes the Host from the request headers, and returns it."""
    hosts = [requests.pop(name) for name in list(requests) if name.lower() == "host"]
    host = hosts[0].lower() if hosts else ""
    if not host or is_host(host):
        return host
    reader.note(Category.CANNOT, "host", f"{host[:100]} cannot be written as the Host", "customRequestHeaders")
    return ""


def _note_refused(reader: FieldReader, key: str, values: dict[str, str]) -> None:
    if refused := _edited(REQUEST_HEADERS, values).refused:
        text = f"cannot be set: {', '.join(name[:60] for name in refused)}"
        reader.note(Category.CANNOT, "headers", text, key if key in reader else None)


def _transport_security(reader: FieldReader) -> str:
    seconds = reader.integer("stsSeconds") or 0
    words = (("stsIncludeSubdomains", "includeSubDomains"), ("stsPreload", "preload"))
    more = [word for key, word in words if reader.boolean(key)]
    return "; ".join([f"max-age={seconds}", *more]) if seconds > 0 else ""


def _cors(reader: FieldReader) -> HTTPRouteFilter | None:
    credentials, age = reader.boolean("accessControlAllowCredentials"), reader.integer("accessControlMaxAge")
    names = ("AllowOriginList", "AllowMethods", "AllowHeaders", "ExposeHeaders")
    origins, methods, allowed, exposed = (reader.texts(f"accessControl{name}") for name in names)
    reader.ignore("addVaryHeader")
    if not origins:
        return None
    result = cors(origins, methods, allowed, exposed, age, credentials)
    if result.refused:
        text = f"cannot be written: {', '.join(value[:60] for value in result.refused)}"
        reader.note(Category.CANNOT, "cors", text, "accessControlAllowOriginList")
    return result.filter
