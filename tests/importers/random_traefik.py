"""Random IngressRoutes, Ingresses, transports and middlewares for Traefik, sensible and not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

Json = dict[str, Any]
API = "traefik.io/v1alpha1"
NAMESPACES = ("shop", "obs")
TRANSPORT: dict[str, tuple[Any, ...]] = {
    "serverName": ("api.internal", "API.internal", "10.0.0.1", "not a name", ""),
    "insecureSkipVerify": (True, False, "true", None),
    "rootCAs": ([{"secret": "ca"}], [{"configMap": "roots"}], [{"secret": "missing"}], [{"secret": "pair"}], [{}], "x"),
    "rootCAsSecrets": (["ca"], ["leaf"], ["pair", "ca"], [1]),
    "certificatesSecrets": (["pair"], ["pair", "other"], []),
    "cipherSuites": (["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], ["TLS_AES_128_GCM_SHA256"], ["ODD"]),
    "minVersion": ("VersionTLS12", "VersionTLS13", "odd"),
    "maxVersion": ("VersionTLS13", "VersionTLS12", "VersionTLS11"),
    "disableHTTP2": (True,),
    "peerCertURI": ("spiffe://x/Y", "junk"),
    "peerCertSANs": (
        [{"type": "DNSName", "value": "san.internal"}],
        [{"type": "URI", "value": "spiffe://a/b"}],
        [{"type": "x"}],
    ),
    "spiffe": ({"ids": ["spiffe://a/b"]}, {"trustDomain": "a"}),
    "maxIdleConnsPerHost": (1,),
    "forwardingTimeouts": ({"dialTimeout": "1s"},),
}
MIDDLEWARE: dict[str, tuple[Any, ...]] = {
    "stripPrefix": ({"prefixes": ["/a"]}, {"prefixes": ["/zzz", "x"], "forceSlash": True}, {}),
    "addPrefix": ({"prefix": "/b"}, {"prefix": "no-slash"}),
    "replacePath": ({"path": "/new"}, {"path": "bad"}),
    "redirectScheme": ({"scheme": "https", "permanent": True}, {"scheme": "http", "port": "8080"}, {"scheme": "ftp"}),
    "redirectRegex": ({"regex": "x", "replacement": "y"},),
    "headers": (
        {"customRequestHeaders": {"X-A": "1", "X-B": "", "Host": "in.example"}, "stsSeconds": 60, "stsPreload": True},
        {"customResponseHeaders": {"bad name": "1"}, "frameDeny": True, "allowedHosts": ["a.example"]},
        {
            "accessControlAllowOriginList": ["*", "junk"],
            "accessControlAllowMethods": ["GET", "BREW"],
            "accessControlMaxAge": 0,
        },
        {"customRequestHeaders": {"Host": "bad_host"}, "forceSTSHeader": True, "stsSeconds": 1},
    ),
    "chain": ({"middlewares": [{"name": "one"}]}, {"middlewares": [{"name": "missing"}]}, {"middlewares": [{"name": "two"}]}),
    "retry": ({"attempts": 3, "initialInterval": "100ms"}, {"attempts": 1}, {"attempts": 2, "status": ["503", "500-599"]}),
    "forwardAuth": (
        {"address": "http://api.shop.svc/auth", "authResponseHeaders": ["X-User", "bad name"]},
        {"address": "https://api.shop.svc", "tls": {"caSecret": "ca"}, "forwardBody": True},
        {"address": "https://api.obs.svc:443/", "tls": {"insecureSkipVerify": True, "certSecret": "pair"}},
        {"address": "https://login.example"},
    ),
    "basicAuth": ({"secret": "users"},),
    "ipAllowList": ({"sourceRange": ["10.0.0.0/8"]},),
    "buffering": ({"maxRequestBodyBytes": 1},),
    "compress": ({},),
}
RULES = (
    *("Host(`a.example`)", "Host(`a.example`) && PathPrefix(`/a`)", "Host(`B.example`) && Path(`/a`)", "PathPrefix(`/`)"),
    *(
        "Host(`a.example`) || Host(`b.example`) && PathPrefix(`/a/`)",
        "(Host(`a.example`) || PathPrefix(`/x`)) && Method(`get`)",
    ),
    *(
        "!Host(`a.example`)",
        "ClientIP(`10.0.0.0/8`)",
        "HostRegexp(`.+`)",
        "Host(`bad_host`)",
        "",
        "(",
        "Host(",
        "Host(`a`) &&",
    ),
    *("PathRegexp(`^/v[0-9]+$`)", "PathRegexp(`(`)", "Header(`X-A`, `1`)", "HeaderRegexp(`X-A`, `^a`)", "Query(`k`, `v`)"),
    *("Host(`a.example`, `c.example`) && Path(`/p/{id:[0-9]+}`)", "Query(`k`)", 'Host("a.example")', "Path(`/a b`)"),
)
SERVICES = ("api", "web", "out", "missing", "Bad_Name")


@st.composite
def _some(draw: st.DrawFn, values: dict[str, tuple[Any, ...]], most: int) -> Json:
    chosen = draw(st.lists(st.sampled_from(sorted(values)), max_size=most, unique=True))
    return {name: draw(st.sampled_from(values[name])) for name in chosen}


def _object(kind: str, namespace: str, name: str, spec: Json, **metadata: Any) -> Json:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}


@st.composite
def _service(draw: st.DrawFn) -> Json:
    found: Json = {"name": draw(st.sampled_from(SERVICES)), "port": draw(st.sampled_from((443, 80, "https", "http", 1)))}
    extra: dict[str, tuple[Any, ...]] = {
        "scheme": ("https", "http", "h2c", "ftp"),
        "serversTransport": ("t", "missing", "shop-t@kubernetescrd", "x@file"),
        "weight": (0, 1, 3),
        "namespace": ("shop", "obs"),
        "passHostHeader": (False,),
        "nativeLB": (True,),
        "sticky": ({"cookie": {"name": "s"}}, {"cookie": {"name": "a b", "secure": True}}, {"cookie": {"maxAge": 9}}),
        "kind": ("Service", "Odd"),
        "strategy": ("wrr",),
        "middlewares": ([{"name": "one"}],),
    }
    found |= draw(_some(extra, 3))
    if draw(st.booleans()):
        found["serversTransport"] = "t"
        found["scheme"] = "https"
    if draw(st.integers(0, 4)) == 0:
        return {
            "kind": "TraefikService",
            "name": draw(st.sampled_from(("split", "mirrored", "itself", "api@internal", "gone"))),
        }
    return found


@st.composite
def _route(draw: st.DrawFn, number: int) -> Json:
    routes = []
    for _ in range(draw(st.integers(1, 2))):
        route: Json = {"match": draw(st.sampled_from(RULES)), "kind": draw(st.sampled_from(("Rule", "Rule", "Odd")))}
        route["services"] = [draw(_service()) for _ in range(draw(st.integers(1, 2)))]
        if draw(st.booleans()):
            names = ("one", "two", "missing", "shop-one@kubernetescrd", "x@file")
            route["middlewares"] = [{"name": draw(st.sampled_from(names))}]
        route |= draw(_some({"priority": (1, 100), "syntax": ("v2", "v3"), "observability": ({"metrics": False},)}, 2))
        routes.append(route)
    spec: Json = {"routes": routes}
    spec |= draw(
        _some({"entryPoints": (["web"], ["websecure"], ["web", "websecure"], ["odd"]), "parentRefs": ([{"name": "x"}],)}, 1)
    )
    if draw(st.booleans()):
        tls = {"secretName": ("pair", "missing"), "certResolver": ("le",), "options": ({"name": "mutual"}, {"name": "none"})}
        spec["tls"] = draw(_some(tls, 2))
    return _object("IngressRoute", draw(st.sampled_from(NAMESPACES)), f"route-{number}", spec)


@st.composite
def _stream(draw: st.DrawFn) -> Json:
    service: Json = {"name": draw(st.sampled_from(SERVICES)), "port": draw(st.sampled_from((443, 80)))}
    service |= draw(_some({"tls": (True,), "serversTransport": ("t", "missing"), "weight": (2,), "proxyProtocol": ({},)}, 3))
    match = draw(st.sampled_from(("HostSNI(`*`)", "HostSNI(`s.example`)", "HostSNI(`bad_host`)", "ClientIP(`10.0.0.1`)")))
    spec: Json = {
        "entryPoints": [draw(st.sampled_from(("web", "websecure", "odd")))],
        "routes": [{"match": match, "services": [service]}],
    }
    if draw(st.booleans()):
        spec["tls"] = draw(st.sampled_from(({"passthrough": True}, {"secretName": "pair"}, {})))
    return _object("IngressRouteTCP", draw(st.sampled_from(NAMESPACES)), "stream", spec)


@st.composite
def _ingress(draw: st.DrawFn) -> Json:
    prefix = "traefik.ingress.kubernetes.io/"
    annotations = {
        f"{prefix}router.entrypoints": ("web", "websecure", "web, websecure", "odd"),
        f"{prefix}router.tls": ("true", "false", "on"),
        f"{prefix}router.middlewares": ("shop-one@kubernetescrd", "x@file", "shop-missing@kubernetescrd"),
        f"{prefix}router.pathmatcher": ("Path", "PathRegexp", "Odd"),
        f"{prefix}router.priority": ("5", "x"),
        f"{prefix}router.tls.options": ("shop-mutual@kubernetescrd",),
        f"{prefix}never-heard-of": ("1",),
    }
    path = draw(st.sampled_from(("/", "/a", "no", "/[", "/a b")))
    port = draw(st.sampled_from(({"number": 443}, {"number": 80}, {"name": "https"})))
    backend = {"service": {"name": draw(st.sampled_from((*SERVICES, "annotated"))), "port": port}}
    kind = draw(st.sampled_from(("Prefix", "Exact", "ImplementationSpecific")))
    host = draw(st.sampled_from(("a.example", "*.w.example", "bad_host")))
    spec: Json = {"rules": [{"host": host, "http": {"paths": [{"path": path, "pathType": kind, "backend": backend}]}}]}
    if draw(st.booleans()):
        spec["tls"] = [{"hosts": [host], "secretName": "pair"}]
    metadata = {"name": "ingress", "namespace": "shop", "annotations": draw(_some(annotations, 3))}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _around() -> list[Json]:
    found: list[Json] = []
    pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
    external = {"type": "ExternalName", "externalName": "x.example", "ports": [{"name": "https", "port": 443}]}
    for namespace in NAMESPACES:
        for name in ("api", "web"):
            found += surroundings.service(namespace, name, {"https": 443, "http": 80})
        found.append(surroundings.secret(namespace, "ca", ca_crt=surroundings.CA))
        found.append(surroundings.secret(namespace, "leaf", tls_ca=surroundings.LEAF))
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.config_map(namespace, "roots", tls_ca=surroundings.NEXT_CA))
        metadata = {"name": "out", "namespace": namespace}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": external})
    annotated = surroundings.service("shop", "annotated", {"https": 443, "http": 80})
    start = "traefik.ingress.kubernetes.io/service."
    marks = {
        f"{start}serversscheme": "https",
        f"{start}serverstransport": "shop-t@kubernetescrd",
        f"{start}sticky.cookie": "true",
    }
    annotated[0]["metadata"]["annotations"] = marks
    return [*found, *annotated]


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = []
    for namespace in NAMESPACES:
        found.append(_object("ServersTransport", namespace, "t", draw(_some(TRANSPORT, 4))))
        found += [_object("Middleware", namespace, name, draw(_some(MIDDLEWARE, 2))) for name in ("one", "two")]
        weighted = {"services": [{"name": "api", "port": 443, "weight": 2}, {"kind": "TraefikService", "name": "mirrored"}]}
        mirrors = [{"name": "web", "port": 80, "percent": draw(st.sampled_from((0, 10, 100)))}]
        mirroring = {"name": "api", "port": 80, "mirrors": mirrors, "maxBodySize": 1}
        itself = draw(st.sampled_from(("failover", "highestRandomWeight")))
        again = {"kind": "TraefikService", "name": "itself"}
        found.append(_object("TraefikService", namespace, "split", {"weighted": weighted}))
        found.append(_object("TraefikService", namespace, "mirrored", {"mirroring": mirroring}))
        ranked = {"services": [again]} if itself == "highestRandomWeight" else {"service": again, "fallback": {"name": "web"}}
        found.append(_object("TraefikService", namespace, "itself", {itself: ranked}))
        mode = draw(st.sampled_from(("RequireAndVerifyClientCert", "VerifyClientCertIfGiven", "RequireAnyClientCert")))
        clients = {"secretNames": ["ca"], "clientAuthType": mode}
        found.append(_object("TLSOption", namespace, "mutual", {"clientAuth": clients, "minVersion": "VersionTLS12"}))
    if draw(st.booleans()):
        found.append(_object("TLSStore", "shop", "default", {"defaultCertificate": {"secretName": "pair"}}))
    if draw(st.booleans()):
        tls = draw(_some({key: TRANSPORT[key] for key in ("serverName", "insecureSkipVerify", "rootCAs", "peerCertSANs")}, 2))
        found.append(_object("ServersTransportTCP", "shop", "t", {"tls": tls, "dialTimeout": "1s"}))
    if draw(st.booleans()):
        found.append(draw(_stream()))
    if draw(st.booleans()):
        found.append(draw(_ingress()))
    return [*found, *(draw(_route(number)) for number in range(draw(st.integers(1, 3))))]
