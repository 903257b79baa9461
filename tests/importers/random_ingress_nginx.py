"""Random Ingresses for ingress-nginx: every annotation, with values that make sense and values that do not."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

PREFIX = "nginx.ingress.kubernetes.io/"
NAMESPACES = ("shop", "obs")
BOOLEANS = ("true", "false", "True", "on", "yes", "")
VALUES: dict[str, tuple[str, ...]] = {
    "backend-protocol": ("HTTP", "HTTPS", "https", " Https ", "GRPC", "GRPCS", "AUTO_HTTP", "FCGI", "HTTPSS", ""),
    "proxy-ssl-secret": ("shop/ca", "obs/ca", "shop/mutual", "obs/pair", "ca", "shop/missing", "other/ca", "shop/leaf"),
    "proxy-ssl-verify": ("on", "off", "On", "true", "yes", "junk", ""),
    "proxy-ssl-name": ("web.internal", "WEB.internal", "10.0.0.1", "*.internal", "not a name", ""),
    "proxy-ssl-server-name": ("on", "off", "web.internal"),
    "proxy-ssl-protocols": ("TLSv1.2", "TLSv1.2 TLSv1.3", "TLSv1.3", "SSLv3"),
    "proxy-ssl-ciphers": ("DEFAULT", "HIGH:!aNULL", "ECDHE-RSA-AES128-GCM-SHA256"),
    "proxy-ssl-verify-depth": ("1", "2", "x"),
    "rewrite-target": ("/", "/$2", "/new/$1", "/$1/$2", "/fixed", "no-slash"),
    "use-regex": BOOLEANS,
    "ssl-redirect": BOOLEANS,
    "force-ssl-redirect": BOOLEANS,
    "ssl-passthrough": ("false", "false", "true"),
    "app-root": ("/home", "home"),
    "permanent-redirect": ("https://new.example/x", "https://$run/host/", "junk", "http://[bad"),
    "permanent-redirect-code": ("301", "308", "999", "x"),
    "temporal-redirect": ("http://new.example$request_uri",),
    "from-to-www-redirect": BOOLEANS,
    "canary": ("false", "true"),
    "canary-weight": ("0", "10", "100", "150", "-1", "x"),
    "canary-by-header": ("X-Canary", "bad header"),
    "canary-by-header-value": ("yes",),
    "canary-by-header-pattern": ("^a.*", "(", "(?=x)"),
    "canary-by-cookie": ("try", "a b"),
    "affinity": ("cookie", "other"),
    "session-cookie-name": ("route", "bad name"),
    "session-cookie-path": ("/", "/x"),
    "session-cookie-max-age": ("60", "-1", "999999999"),
    "upstream-vhost": ("inner.example", "$host", "INNER", "a_b"),
    "x-forwarded-prefix": ("/x", "a\nb"),
    "custom-headers": ("shop/headers", "missing"),
    "enable-cors": BOOLEANS,
    "cors-allow-origin": ("*", "https://a.example, https://*.b.example", "junk", "https://a.example:1"),
    "cors-allow-methods": ("GET, POST", "JUNK", "*"),
    "cors-allow-headers": ("X-A,X-B", "bad header"),
    "cors-max-age": ("600", "0", "x", "99999999999"),
    "mirror-target": ("http://api.shop.svc/", "https://api.shop.svc$request_uri", "https://elsewhere.example"),
    "server-alias": ("alias.example", "~^x", "a.example,b.example", "*.wild.example"),
    "auth-url": ("http://api.shop.svc/auth", "https://api.shop.svc:443/auth", "https://login.example/x", "junk"),
    "auth-response-headers": ("X-User", "bad header"),
    "auth-tls-secret": ("shop/ca", "ca", "obs/ca"),
    "auth-tls-verify-client": ("on", "off", "optional", "junk"),
    "auth-tls-verify-depth": ("2",),
    "whitelist-source-range": ("10.0.0.0/8",),
    "limit-rps": ("5",),
    "configuration-snippet": ("deny all;",),
    "proxy-body-size": ("8m",),
    "proxy-read-timeout": ("120",),
    "never-heard-of": ("1",),
}
PATHS = ("/", "/a", "/a/", "/A", "/a(/|$)(.*)", "/b/(.*)", "/[", "no-slash", "/a b", "/a.b", "")
HOSTS = ("a.example", "b.example", "*.c.example", "", "www.a.example", "B.example")
SERVICES = ("api", "web", "missing", "Bad_Name")


def _names(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


@st.composite
def _annotations(draw: st.DrawFn) -> dict[str, str]:
    chosen = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=6, unique=True))
    tls = draw(st.booleans())
    if tls:
        chosen += ["backend-protocol", "proxy-ssl-secret", "proxy-ssl-verify", "proxy-ssl-name"]
    return {f"{PREFIX}{name}": draw(st.sampled_from(VALUES[name])) for name in dict.fromkeys(chosen)}


@st.composite
def _ingress(draw: st.DrawFn, number: int) -> dict[str, Any]:
    namespace = draw(_names(*NAMESPACES))
    host = draw(_names(*HOSTS))
    paths = [
        {
            "path": draw(_names(*PATHS)),
            "pathType": draw(_names("Prefix", "Exact", "ImplementationSpecific")),
            "backend": {"service": {"name": draw(_names(*SERVICES)), "port": draw(_port())}},
        }
        for _ in range(draw(st.integers(1, 3)))
    ]
    spec: dict[str, Any] = {"rules": [{**({"host": host} if host else {}), "http": {"paths": paths}}]}
    if draw(st.booleans()):
        secret = {"secretName": draw(_names("pair", "missing", "Bad_Name"))} if draw(st.booleans()) else {}
        spec["tls"] = [{**({"hosts": [host]} if host else {}), **secret}]
    if draw(st.integers(0, 5)) == 0:
        spec["defaultBackend"] = {"service": {"name": "web", "port": {"number": 80}}}
    metadata: dict[str, Any] = {"name": f"ingress-{number}", "namespace": namespace, "annotations": draw(_annotations())}
    if draw(st.booleans()):
        metadata["creationTimestamp"] = f"2024-01-0{draw(st.integers(1, 9))}T00:00:00Z"
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


@functools.cache
def _port() -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(
        [{"number": 443}, {"number": 80}, {"name": "https"}, {"name": "http"}, {"name": "none"}, {"number": 1}]
    )


def _around() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for namespace in NAMESPACES:
        for name in ("api", "web"):
            found += surroundings.service(namespace, name, {"https": 443, "http": 80})
        found.append(surroundings.secret(namespace, "ca", ca_crt=surroundings.CA))
        found.append(surroundings.secret(namespace, "leaf", ca_crt=surroundings.LEAF))
        pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.secret(namespace, "mutual", ca_crt=surroundings.NEXT_CA, **pair))
    return [*found, surroundings.config_map("shop", "headers", X_Team="shop")]


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if draw(st.booleans()):
        data = {"proxy-ssl-location-only": draw(_names("true", "false")), "hsts": draw(_names("true", "false", "junk"))}
        found.append(surroundings.config_map("ingress-nginx", "ingress-nginx-controller", **data))
    return [*found, *(draw(_ingress(number)) for number in range(draw(st.integers(1, 4))))]
