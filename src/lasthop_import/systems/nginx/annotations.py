"""Lists annotations without an equivalent, and the consequence of each."""

from __future__ import annotations

from typing import Final

from lasthop_import.ingresses import Annotations
from lasthop_import.notes import Category

_LIMITS: Final = ("rate", "key", "zone-size", "delay", "no-delay", "burst", "dry-run", "log-level", "reject-code", "scale")
ACCESS_CONTROL: Final = {
    "basic-auth-secret": "users had to log in; no login is required now",
    "basic-auth-realm": "belongs to basic authentication, which is gone",
    "location-snippets": "nginx configuration, which may restrict access",
    "server-snippets": "nginx configuration, which may restrict access",
    **{f"limit-req-{suffix}": "requests of one client were limited" for suffix in _LIMITS},
}
ACCESS_CONTROL_OF_PLUS: Final = {
    "nginx.com/jwt-key": "requests needed a JSON Web Token; none is required now",
    "nginx.com/jwt-realm": "belongs to the JSON Web Token, which is not required now",
    "nginx.com/jwt-token": "belongs to the JSON Web Token, which is not required now",
    "nginx.com/jwt-login-url": "belongs to the JSON Web Token, which is not required now",
    **{
        f"appprotect.f5.com/app-protect-{suffix}": "a web application firewall inspected requests"
        for suffix in ("enable", "policy", "security-log", "security-log-destination", "security-log-enable")
    },
    "appprotectdos.f5.com/app-protect-dos-resource": "protected against denial of service",
}
CANNOT: Final = {
    "custom-http-errors": "the backend's error pages are passed on",
    "fail-timeout": "nginx left out a Pod that failed",
    "max-fails": "nginx left out a Pod that failed",
    "max-conns": "connections to one Pod were limited",
    "lb-method": "the new gateway balances in its own way",
    "proxy-connect-timeout": "the new gateway has its own connect timeout",
    "proxy-read-timeout": "nginx limits the time between two reads, not the whole request; for that, write timeouts.request",
    "proxy-send-timeout": "nginx limits the time between two writes, not the whole request",
    "proxy-next-upstream": "nginx tried another Pod in these cases; write retry if you want that",
    "proxy-next-upstream-timeout": "belongs to proxy-next-upstream",
    "proxy-next-upstream-tries": "belongs to proxy-next-upstream",
    "proxy-buffering": "responses are streamed",
    "proxy-pass-headers": "which headers of the backend are passed on has no equivalent",
    "proxy-redirect-from": "the Location header is not rewritten",
    "proxy-redirect-to": "the Location header is not rewritten",
    "server-tokens": "the Server header is the gateway's own",
    "ssl-ciphers": "ciphers for clients cannot be set by host",
    "ssl-prefer-server-ciphers": "ciphers for clients cannot be set by host",
}
CANNOT_OF_PLUS: Final = {
    **dict.fromkeys(
        ("nginx.com/health-checks", "nginx.com/health-checks-mandatory", "nginx.com/health-checks-mandatory-queue"),
        "Pods are not probed by the gateway; Kubernetes does that",
    ),
    "nginx.com/slow-start": "a new Pod gets its share at once",
}
IGNORED: Final = (
    *("client-body-buffer-size", "keepalive", "proxy-buffer-size", "proxy-buffers", "proxy-busy-buffers-size"),
    *("proxy-max-temp-file-size", "upstream-zone-size", "use-cluster-ip", "websocket-services", "add-header-inherit"),
)
"""Annotations whose loss has no effect."""
EVERYWHERE: Final = (
    *("listen-ports", "listen-ports-ssl", "redirect-to-https", "ssl-redirect", "http-redirect-code", "app-root", "hsts"),
    *("hsts-max-age", "hsts-include-subdomains", "hsts-behind-proxy", "path-regex", "rewrite-target", "proxy-set-headers"),
    *("add-header", "proxy-hide-headers"),
)
"""Annotations that other functions read where they have an effect. On a minion, annotations for servers have none."""


def list_unsupported(annotations: Annotations) -> None:
    reader = annotations.reader
    for name, text in ACCESS_CONTROL.items():
        reader.access_control(annotations.key(name), text)
    for name, text in ACCESS_CONTROL_OF_PLUS.items():
        reader.access_control(name, text)
    for name, text in CANNOT.items():
        reader.cannot(annotations.key(name), text)
    for name, text in CANNOT_OF_PLUS.items():
        reader.cannot(name, text)
    if "client-max-body-size" in annotations:
        text = "larger requests were refused with 413, and are passed on now"
        annotations.note(Category.LOOSENED, "body-limit-dropped", text, "client-max-body-size")
    reader.ignore(*(annotations.key(name) for name in IGNORED))
