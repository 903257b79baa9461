"""Random VirtualServers, VirtualServerRoutes, TransportServers, Policies and Ingresses for NGINX Inc.'s controller."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

API = "k8s.nginx.org/v1"
NAMESPACES = ("shop", "obs")
HOSTS = ("a.example", "b.example", "*.c.example", "B.example")
PATHS = ("/", "/a", "/a/", "=/a", "^~ /b", "~ ^/v[0-9]+", "~* \\.png$", "~ (", "no-slash", "/a b", "/pkg.Service/", "")
UPSTREAMS = ("core", "feed", "missing")
ANNOTATIONS: dict[str, tuple[str, ...]] = {
    "ssl-services": ("api", "api,web", "missing"),
    "grpc-services": ("api", "web"),
    "policies": ("egress", "shop/egress,cors", "gone", "clients"),
    "rewrites": ("serviceName=api rewrite=/new/", "junk", "serviceName=api rewrite=$x"),
    "rewrite-target": ("/x", "/$1"),
    "redirect-to-https": ("true", "on"),
    "ssl-redirect": ("true", "false", "yes"),
    "http-redirect-code": ("308", "x"),
    "hsts": ("true", "junk"),
    "hsts-max-age": ("600", "x"),
    "proxy-set-headers": ("X-A: b, bad header: c, X-D: $e", "Host: x"),
    "add-header": ("X-A: b",),
    "proxy-hide-headers": ("X-B, bad header",),
    "path-regex": ("case_sensitive", "case_insensitive", "exact", "junk"),
    "sticky-cookie-services": ("serviceName=api srv expires=1h path=/", "serviceName=api bad"),
    "listen-ports": ("8080", "80,8080", "x", "99999"),
    "app-root": ("/home", "home"),
    "mergeable-ingress-type": ("master", "minion"),
    "server-snippets": ("deny all;",),
    "limit-req-rate": ("1r/s",),
    "client-max-body-size": ("1m",),
    "never-heard-of": ("1",),
}


def _names(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _metadata(namespace: str, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace}


@st.composite
def _egress(draw: st.DrawFn) -> dict[str, Any]:
    fields = {
        "verifyServer": (True, True, False, "true"),
        "trustedCertSecret": ("ca", "leaf", "opaque", "missing"),
        "tlsSecret": ("pair", "ca", "missing"),
        "sslName": ("web.internal", "10.0.0.1", "*.internal", "not a name", ""),
        "serverName": (True, False),
        "verifyDepth": (1, 2, "x"),
        "protocols": ("TLSv1.2", "TLSv1.2 TLSv1.3", "SSLv3", "TLSv1"),
        "ciphers": ("DEFAULT", "HIGH:!aNULL", "ECDHE-RSA-AES128-GCM-SHA256"),
        "sessionReuse": (True, False),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), unique=True))
    return {name: draw(_names(*fields[name])) for name in (*chosen, "sslName", "trustedCertSecret")}


@st.composite
def _policy(draw: st.DrawFn, name: str, namespace: str) -> dict[str, Any]:
    specs: dict[str, st.SearchStrategy[dict[str, Any]]] = {
        "egress": st.builds(lambda egress: {"egressMTLS": egress}, _egress()),
        "cors": _names({"cors": {"allowOrigin": ["*", "junk x"], "maxAge": 1}}, {"hsts": {"maxAge": 5}}),
        "clients": _names(
            {"ingressMTLS": {"clientCertSecret": "ca", "verifyClient": "on"}},
            {"ingressMTLS": {"clientCertSecret": "ca", "verifyClient": "optional"}},
        ),
        "ask": _names(
            {"externalAuth": {"authURI": "/x", "authServiceName": "web", "authServicePorts": [443], "sslEnabled": True}},
            {"externalAuth": {"authURI": "/", "authServiceName": "shop/web"}},
            {"accessControl": {"allow": ["10.0.0.0/8"]}},
        ),
    }
    return {"apiVersion": API, "kind": "Policy", "metadata": _metadata(namespace, name), "spec": draw(specs[name])}


@functools.cache
def _upstreams() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries(
        {
            "service": _names("api", "web", "gone", "obs/api", "Bad_Name"),
            "port": _names(443, 80, 1, 70000),
            "tls": _names({}, {"enable": True}, {"enable": True}, {"enable": False}, {"enable": "true"}),
        },
        optional={
            "type": _names("grpc", "http", "junk"),
            "sessionCookie": _names({"enable": True, "name": "srv", "expires": "1h"}, {"enable": True, "name": "bad name"}),
            "connect-timeout": _names("30s"),
            "client-max-body-size": _names("1m"),
        },
    )
    return st.builds(lambda a, b: [{"name": "core", **a}, {"name": "feed", **b}], one, one)


@functools.cache
def _action() -> st.SearchStrategy[dict[str, Any]]:
    headers = {"set": [{"name": "X-A", "value": "b"}, {"name": "Host", "value": "h"}, {"name": "bad name", "value": "${x}"}]}
    proxy = st.fixed_dictionaries(
        {"upstream": _names(*UPSTREAMS)},
        optional={
            "rewritePath": _names("/x", "/", "/$1", "no"),
            "requestHeaders": _names(headers, {"pass": False}),
            "responseHeaders": _names({"hide": ["X-B"], "add": [{"name": "X-C", "value": "d", "always": True}]}),
        },
    )
    urls = ("https://x.example/", "${scheme}://${host}${request_uri}", "http://x.example?${args}", "junk")
    return st.one_of(
        _names(*({"pass": each} for each in UPSTREAMS)),
        st.builds(lambda value: {"proxy": value}, proxy),
        st.builds(lambda url, code: {"redirect": {"url": url, "code": code}}, _names(*urls), _names(301, 302, 999)),
        _names({"return": {"code": 200, "body": "x"}}, {}),
    )


@functools.cache
def _splits() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(st.fixed_dictionaries({"weight": _names(0, 50, 100, -1), "action": _action()}), min_size=1, max_size=3)


@functools.cache
def _choice() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(st.builds(lambda a: {"action": a}, _action()), st.builds(lambda s: {"splits": s}, _splits()))


@functools.cache
def _conditions() -> st.SearchStrategy[list[dict[str, Any]]]:
    values = _names("v2", "1", "!no", "~^a", "~*b$", "~(", "")
    subjects = _names(
        {"header": "X-A"}, {"cookie": "c"}, {"argument": "q"}, {"variable": "$request_method"}, {"header": "b d"}
    )
    return st.lists(st.builds(lambda subject, value: {**subject, "value": value}, subjects, values), min_size=1, max_size=2)


@st.composite
def _route(draw: st.DrawFn) -> dict[str, Any]:
    route: dict[str, Any] = {"path": draw(_names(*PATHS)), **draw(_choice())}
    if draw(st.integers(0, 2)) == 0:
        route["policies"] = [{"name": draw(_names("egress", "cors", "ask", "gone"))}]
    if draw(st.integers(0, 3)) == 0:
        route["matches"] = [{"conditions": draw(_conditions()), **draw(_choice())}]
    return route


@st.composite
def _server(draw: st.DrawFn, number: int, namespace: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"host": draw(_names(*HOSTS)), "upstreams": draw(_upstreams())}
    spec["routes"] = draw(st.lists(_route(), min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        spec["routes"].append({"path": "/sub", "route": "sub", "policies": [{"name": "egress"}]})
    if draw(st.booleans()):
        spec["policies"] = [{"name": draw(_names("egress", "cors", "clients", "ask"))}]
    if draw(st.booleans()):
        redirect = {"enable": draw(_names(True, False, "yes")), "code": draw(_names(301, 999))}
        spec["tls"] = {**draw(_names({"secret": "pair"}, {"secret": "Bad_Name"}, {})), "redirect": redirect}
    if draw(st.integers(0, 4)) == 0:
        spec["listener"] = draw(_names({"http": "web"}, {"https": "gone"}, {}))
    return {"apiVersion": API, "kind": "VirtualServer", "metadata": _metadata(namespace, f"vs-{number}"), "spec": spec}


@st.composite
def _subroutes(draw: st.DrawFn, namespace: str) -> dict[str, Any]:
    subroutes = [{**draw(_route()), "path": "/sub/a"} for _ in range(draw(st.integers(1, 2)))]
    spec = {"host": draw(_names(*HOSTS)), "upstreams": draw(_upstreams()), "subroutes": subroutes}
    return {"apiVersion": API, "kind": "VirtualServerRoute", "metadata": _metadata(namespace, "sub"), "spec": spec}


@st.composite
def _stream(draw: st.DrawFn, number: int, namespace: str) -> dict[str, Any]:
    passthrough = {"name": "tls-passthrough", "protocol": "TLS_PASSTHROUGH"}
    spec: dict[str, Any] = {
        "listener": draw(_names(passthrough, {"name": "db", "protocol": "TCP"}, {"name": "gone", "protocol": "TCP"})),
        "upstreams": [{"name": "core", "service": draw(_names("api", "gone")), "port": draw(_names(443, 1))}],
        "action": {"pass": draw(_names("core", "missing"))},
    }
    if draw(st.booleans()):
        spec["host"] = draw(_names("s.example", "t.example", "a.example"))
    return {"apiVersion": API, "kind": "TransportServer", "metadata": _metadata(namespace, f"ts-{number}"), "spec": spec}


@st.composite
def _ingress(draw: st.DrawFn, number: int, namespace: str) -> dict[str, Any]:
    host = draw(_names(*HOSTS, "d.example"))
    path = st.fixed_dictionaries(
        {
            "path": _names("/", "/a", "/a/", "/(x)", "no"),
            "pathType": _names("Prefix", "Exact", "ImplementationSpecific"),
            "backend": _names(
                {"service": {"name": "api", "port": {"number": 443}}}, {"service": {"name": "web", "port": {"name": "http"}}}
            ),
        }
    )
    spec: dict[str, Any] = {"rules": [{"host": host, "http": {"paths": draw(st.lists(path, min_size=1, max_size=2))}}]}
    if draw(st.booleans()):
        spec["tls"] = [{"hosts": [host], **draw(_names({}, {"secretName": "pair"}))}]
    chosen = draw(st.lists(st.sampled_from(sorted(ANNOTATIONS)), max_size=5, unique=True))
    annotations = {f"nginx.org/{name}": draw(_names(*ANNOTATIONS[name])) for name in chosen}
    metadata = {**_metadata(namespace, f"ingress-{number}"), "annotations": annotations}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _around() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for namespace in NAMESPACES:
        for name in ("api", "web"):
            found += surroundings.service(namespace, name, {"https": 443, "http": 80})
        ca = surroundings.secret(namespace, "ca", ca_crt=surroundings.CA)
        leaf = surroundings.secret(namespace, "leaf", ca_crt=surroundings.LEAF)
        pair = surroundings.secret(namespace, "pair", tls_crt=surroundings.CERTIFICATE, tls_key=surroundings.KEY)
        found += [{**ca, "type": "nginx.org/ca"}, {**leaf, "type": "nginx.org/ca"}, {**pair, "type": "kubernetes.io/tls"}]
        found.append(surroundings.secret(namespace, "opaque", ca_crt=surroundings.CA))
    return found


AROUND = _around()
GLOBAL = {
    "apiVersion": API,
    "kind": "GlobalConfiguration",
    "metadata": _metadata("nginx", "nginx"),
    "spec": {
        "listeners": [{"name": "db", "port": 5432, "protocol": "TCP"}, {"name": "web", "port": 8080, "protocol": "HTTP"}]
    },
}


@st.composite
def documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    namespace = draw(_names(*NAMESPACES))
    found = [GLOBAL] if draw(st.booleans()) else []
    for name in draw(st.lists(_names("egress", "cors", "clients", "ask"), unique=True, min_size=1)):
        found.append(draw(_policy(name, namespace)))
    found += [draw(_server(number, namespace)) for number in range(draw(st.integers(0, 2)))]
    if draw(st.integers(0, 2)) == 0:
        found.append(draw(_subroutes(namespace)))
    found += [draw(_ingress(number, namespace)) for number in range(draw(st.integers(0, 3)))]
    if draw(st.integers(0, 2)) == 0:
        found.append(draw(_stream(0, namespace)))
    return found
