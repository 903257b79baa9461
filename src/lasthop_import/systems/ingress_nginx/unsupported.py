"""Lists annotations without an equivalent, and the consequence of each."""

from __future__ import annotations

from typing import Final

from lasthop_import.ingresses import Annotations
from lasthop_import.notes import Category
from lasthop_import.systems.ingress_nginx.filters import retry

ACCESS_CONTROL: Final = {
    "whitelist-source-range": "only these client addresses had access; Gateway API has no IP allowlists",
    "allowlist-source-range": "only these client addresses had access; Gateway API has no IP allowlists",
    "denylist-source-range": "these client addresses were refused; Gateway API has no IP denylists",
    "auth-type": "users had to log in; no login is required now",
    "auth-secret": "held the users of basic or digest authentication, which is gone",
    "auth-secret-type": "belongs to basic authentication, which is gone",
    "auth-realm": "belongs to basic authentication, which is gone",
    "satisfy": "combined several access rules, which are gone",
    "limit-connections": "connections of one client were limited",
    "limit-rps": "requests of one client were limited",
    "limit-rpm": "requests of one client were limited",
    "limit-rate": "the bandwidth of one connection was limited",
    "limit-rate-after": "belongs to limit-rate",
    "limit-burst-multiplier": "belongs to the limits of requests",
    "limit-whitelist": "belongs to the limits of requests",
    "limit-allowlist": "belongs to the limits of requests",
    "enable-modsecurity": "a web application firewall inspected requests",
    "enable-owasp-core-rules": "belongs to the web application firewall",
    "modsecurity-snippet": "belongs to the web application firewall",
    "modsecurity-transaction-id": "belongs to the web application firewall",
    "configuration-snippet": "nginx configuration, which may restrict access",
    "server-snippet": "nginx configuration, which may restrict access",
    "stream-snippet": "nginx configuration, which may restrict access",
    "auth-snippet": "nginx configuration of the authentication request",
    "auth-tls-match-cn": "only client certificates with a matching name were accepted",
    "enable-global-auth": "belongs to the controller's global-auth-url",
}
CANNOT: Final = {
    "proxy-connect-timeout": "the new gateway has its own connect timeout",
    "proxy-read-timeout": "nginx limits the time between two reads, not the whole request; for that, write timeouts.request",
    "proxy-send-timeout": "nginx limits the time between two writes, not the whole request",
    "proxy-next-upstream": "nginx tried another Pod in these cases; for more than failed connections, write retry",
    "proxy-next-upstream-timeout": "belongs to proxy-next-upstream",
    "proxy-next-upstream-tries": "belongs to proxy-next-upstream",
    "proxy-buffering": "responses are streamed",
    "proxy-buffer-size": "has no meaning for Envoy",
    "proxy-buffers-number": "has no meaning for Envoy",
    "proxy-busy-buffers-size": "has no meaning for Envoy",
    "proxy-max-temp-file-size": "has no meaning for Envoy",
    "proxy-request-buffering": "requests are streamed",
    "client-body-buffer-size": "has no meaning for Envoy",
    "proxy-http-version": "the protocol follows from the backend",
    "proxy-cookie-domain": "cookies are not rewritten",
    "proxy-cookie-path": "cookies are not rewritten",
    "proxy-redirect-from": "the Location header is not rewritten",
    "proxy-redirect-to": "the Location header is not rewritten",
    "connection-proxy-header": "the Connection header is the gateway's own",
    "custom-http-errors": "the backend's error pages are passed on",
    "default-backend": "the default backend for Services without endpoints; the gateway answers 503",
    "disable-proxy-intercept-errors": "belongs to custom-http-errors",
    "load-balance": "the new gateway balances in its own way",
    "upstream-hash-by": "requests are not distributed by a hash",
    "upstream-hash-by-subset": "belongs to upstream-hash-by",
    "upstream-hash-by-subset-size": "belongs to upstream-hash-by",
    "affinity-mode": "sessions are balanced when their Pod disappears",
    "affinity-canary-behavior": "sessions follow the backend that was chosen first",
    "session-cookie-conditional-samesite-none": "the cookie's SameSite cannot be set",
    "session-cookie-samesite": "the cookie's SameSite cannot be set",
    "session-cookie-secure": "the cookie's Secure cannot be set",
    "session-cookie-domain": "the cookie's domain cannot be set",
    "session-cookie-change-on-failure": "a session moves when its Pod disappears",
    "ssl-ciphers": "ciphers for clients cannot be set by host",
    "ssl-prefer-server-ciphers": "ciphers for clients cannot be set by host",
    "enable-opentelemetry": "tracing is not configured by route",
    "opentelemetry-trust-incoming-span": "tracing is not configured by route",
    "opentelemetry-operation-name": "tracing is not configured by route",
    "enable-opentracing": "tracing is not configured by route",
    "opentracing-trust-incoming-span": "tracing is not configured by route",
    "enable-access-log": "the access log is the gateway's own",
    "enable-rewrite-log": "there is no such log",
    "http2-push-preload": "browsers have dropped HTTP/2 push",
    "preserve-trailing-slash": "there is no trailing-slash redirect",
    "use-port-in-redirects": "redirects have the listener's port",
    "relative-redirects": "redirects are absolute",
    "mirror-request-body": "a mirrored request has its body",
    "mirror-host": "a mirrored request has the request's own Host with the suffix -shadow",
    "auth-signin": "a client that is refused is not sent to a login page",
    "auth-signin-redirect-param": "belongs to auth-signin",
    "auth-method": "the authorization server is asked with the request's own method",
    "auth-request-redirect": "the header X-Auth-Request-Redirect is not sent",
    "auth-cache-key": "answers of the authorization server are not cached",
    "auth-cache-duration": "answers of the authorization server are not cached",
    "auth-keepalive": "connections to the authorization server are kept anyway",
    "auth-keepalive-requests": "connections to the authorization server are kept anyway",
    "auth-keepalive-timeout": "connections to the authorization server are kept anyway",
    "auth-keepalive-share-vars": "has no meaning for Envoy",
    "auth-proxy-set-headers": "headers for the authorization server only cannot be set",
    "auth-always-set-cookie": "cookies of the authorization server reach the client only with its refusals",
    "auth-tls-error-page": "a client without a valid certificate gets a TLS error",
    "auth-tls-pass-certificate-to-upstream": "the client's certificate is not passed on",
    "canary-weight-total": "weights are relative",
}
IGNORED: Final = ("service-upstream", "session-cookie-expires")
"""Annotations whose loss has no effect: Envoy always connects to Pods; max-age takes precedence over expires."""
BEHIND: Final = {"canary-weight-total": "canary-weight"}


def list_unsupported(annotations: Annotations) -> None:
    for name in annotations.names():
        if name in ACCESS_CONTROL:
            annotations.reader.access_control(annotations.key(name), ACCESS_CONTROL[name])
        elif name == "proxy-next-upstream" and retry(annotations):
            continue
        elif name in CANNOT and name not in BEHIND:
            annotations.reader.cannot(annotations.key(name), CANNOT[name])
    if "proxy-body-size" in annotations:
        text = "larger requests were refused with 413, and are passed on now"
        annotations.note(Category.LOOSENED, "body-limit-dropped", text, "proxy-body-size")
    annotations.reader.ignore(*(annotations.key(name) for name in IGNORED))
