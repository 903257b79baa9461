"""Parses URLs of Services and of redirects."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from lasthop.base.api.routes import HTTPRequestRedirectFilter
from lasthop_import.model import ServiceBackend
from lasthop_import.values import full_path

_SERVICE: Final = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.[a-z0-9.-]+)?\.?")


class ServiceURL(NamedTuple):
    """A URL that leads to a Service of the cluster."""

    backend: ServiceBackend
    tls: bool
    path: str


def service_url(url: str) -> ServiceURL | None:
    """Returns the Service that a URL leads to; None if it leads elsewhere."""
    parts, port = _parts(url)
    match = _SERVICE.fullmatch(parts.hostname or "")
    if match is None:
        return None
    number = port or (443 if parts.scheme == "https" else 80)
    return ServiceURL(ServiceBackend(match["namespace"], match["name"], number), parts.scheme == "https", parts.path)


def _parts(url: str) -> tuple[SplitResult, int]:
    """Returns the parts of an HTTP URL and its port, which is 0 without one; empty parts for any other URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or 0
    except ValueError:
        return urlsplit(""), 0
    return (parts, port) if parts.scheme in ("http", "https") else (urlsplit(""), 0)


def redirect_to(url: str, code: int) -> HTTPRequestRedirectFilter | None:
    """Returns the redirect to a fixed address; None if the URL has parts that a redirect cannot have."""
    keeps_path = url.endswith("$request_uri")
    parts, port = _parts(url.removesuffix("$request_uri"))
    if not parts.hostname or parts.query or parts.fragment or "$" in parts.path:
        return None
    path = None if keeps_path and not parts.path else full_path(parts.path or "/")
    return HTTPRequestRedirectFilter(parts.scheme, parts.hostname, path, port, code)
