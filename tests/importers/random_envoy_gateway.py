"""Random Backends, routes and policies for Envoy Gateway. Gateway API objects are such as an API server takes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

Json = dict[str, Any]
API = "gateway.envoyproxy.io/v1alpha1"
GATEWAY_API = "gateway.networking.k8s.io/v1"
CAS = ({"kind": "ConfigMap", "name": "roots"}, {"kind": "Secret", "name": "ca"}, {"kind": "Secret", "name": "missing"})
TLS: dict[str, tuple[Any, ...]] = {
    "insecureSkipVerify": (True, False, "true"),
    "caCertificateRefs": tuple([{"group": "", **each}] for each in (*CAS, {"kind": "Secret", "name": "odd"})),
    "wellKnownCACertificates": ("System", "Odd"),
    "sni": ("nas.internal", "10.0.0.1", "Not A Name"),
    "clientCertificateRef": ({"name": "pair"},),
    "minVersion": ("1.2", "1.3", "1.0"),
    "ciphers": (["ECDHE-RSA-AES128-GCM-SHA256"], ["ODD"]),
    "ecdhCurves": (["X25519"], ["odd"]),
    "alpnProtocols": (["h2"], []),
    "autoSNIFromEndpointHostname": (True,),
    "signatureAlgorithms": (["x"],),
}
ENDPOINTS = (
    [{"fqdn": {"hostname": "api.partner.example", "port": 443}}],
    [{"fqdn": {"hostname": "a.partner.example", "port": 443}}, {"fqdn": {"hostname": "b.partner.example", "port": 8443}}],
    [{"ip": {"address": "192.0.2.40", "port": 5001}}],
    [{"ip": {"address": "192.0.2.40", "port": 5001}}, {"ip": {"address": "2001:db8::1", "port": 5002}, "zone": "z"}],
    [{"unix": {"path": "/x"}}],
    [{"ip": {"address": "not an address", "port": 1}}],
)
TRAFFIC: dict[str, tuple[Any, ...]] = {
    "timeout": ({"http": {"requestTimeout": "5s", "connectionIdleTimeout": "1s"}}, {"tcp": {"connectTimeout": "1s"}}),
    "retry": (
        {"numRetries": 3, "retryOn": {"httpStatusCodes": [503], "triggers": ["reset"]}},
        {"perRetry": {"timeout": "1s"}},
    ),
    "loadBalancer": (
        {"type": "ConsistentHash", "consistentHash": {"type": "Cookie", "cookie": {"name": "lane", "ttl": "60s"}}},
        {"type": "Random"},
    ),
    "rateLimit": ({"type": "Global"},),
    "circuitBreaker": ({"maxConnections": 1},),
    "mergeType": ("JSONMerge",),
}
SECURITY: dict[str, tuple[Any, ...]] = {
    "cors": ({"allowOrigins": ["https://a.example", "junk"], "allowMethods": ["GET", "BREW"], "maxAge": "1h"},),
    "extAuth": (
        {
            "http": {"backendRefs": [{"name": "api", "port": 443}], "path": "/x", "headersToBackend": ["X-User"]},
            "failOpen": True,
        },
        {
            "grpc": {"backendRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "one"}]},
            "headersToExtAuth": ["A"],
        },
        {"http": {"backendRef": {"name": "web", "port": 80}}, "bodyToExtAuth": {"maxRequestBytes": 5}},
        {"http": {"backendRefs": []}},
    ),
    "jwt": ({"providers": []},),
    "basicAuth": ({"users": {"name": "x"}},),
}


@st.composite
def _some(draw: st.DrawFn, values: dict[str, tuple[Any, ...]], most: int) -> Json:
    chosen = draw(st.lists(st.sampled_from(sorted(values)), max_size=most, unique=True))
    return {name: draw(st.sampled_from(values[name])) for name in chosen}


def _object(kind: str, namespace: str, name: str, spec: Json, api: str = API) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@st.composite
def _backend(draw: st.DrawFn, name: str) -> Json:
    spec: Json = {"endpoints": draw(st.sampled_from(ENDPOINTS))}
    if draw(st.integers(0, 2)):
        spec["tls"] = draw(_some(TLS, 3))
    spec |= draw(_some({"appProtocols": (["gateway.envoyproxy.io/h2c"],), "fallback": (True,)}, 1))
    if draw(st.integers(0, 8)) == 0:
        spec = {"type": "DynamicResolver"}
    return _object("Backend", "shop", name, spec)


@st.composite
def _policy(draw: st.DrawFn, number: int) -> Json:
    names = ("Service", "", "api"), ("Service", "", "web"), ("gateway.envoyproxy.io", "", "one")
    validation: Json = {"hostname": draw(st.sampled_from(("api.internal", "web.internal")))}
    if draw(st.integers(0, 3)):
        validation["caCertificateRefs"] = [{"group": "", **draw(st.sampled_from(CAS))}]
    else:
        validation["wellKnownCACertificates"] = "System"
    if draw(st.booleans()):
        uri = {"type": "URI", "uri": "spiffe://a/b"}
        validation["subjectAltNames"] = [draw(st.sampled_from((uri, {"type": "Hostname", "hostname": "san.internal"})))]
    kind, _, name = draw(st.sampled_from(names))
    target: Json = {"group": "", "kind": "Service", "name": name}
    if kind != "Service":
        target = {"group": kind, "kind": "Backend", "name": name}
    elif draw(st.booleans()):
        target["sectionName"] = draw(st.sampled_from(("https", "http")))
    spec = {"targetRefs": [target], "validation": validation}
    return _object("BackendTLSPolicy", "shop", f"policy-{number}", spec, GATEWAY_API)


@st.composite
def _reference(draw: st.DrawFn) -> Json:
    own = {"group": "gateway.envoyproxy.io", "kind": "Backend"}
    ref: Json = draw(
        st.sampled_from(
            (
                {"name": "api", "port": 443},
                {"name": "api", "port": 80},
                {"name": "web", "port": 443},
                {**own, "name": "one"},
                {**own, "name": "two"},
                {**own, "name": "gone"},
            )
        )
    )
    return {**ref, "weight": draw(st.integers(0, 9))} if draw(st.booleans()) else dict(ref)


@st.composite
def _route(draw: st.DrawFn, number: int) -> Json:
    rules = []
    for index in range(draw(st.integers(1, 2))):
        rule: Json = {"name": f"r{index}", "matches": [{"path": {"type": "PathPrefix", "value": f"/{number}{index}"}}]}
        rule["backendRefs"] = [draw(_reference()) for _ in range(draw(st.integers(1, 2)))]
        extension = {"group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter"}
        filters = (
            {"type": "ExtensionRef", "extensionRef": {**extension, "name": "answer"}},
            {"type": "ExtensionRef", "extensionRef": {**extension, "name": "rewrite"}},
            {"type": "URLRewrite", "urlRewrite": {"hostname": "in.example"}},
            {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "web", "port": 80}}},
        )
        if draw(st.integers(0, 2)) == 0:
            rule["filters"] = [draw(st.sampled_from(filters))]
        rules.append(rule)
    spec: Json = {"parentRefs": [{"name": draw(st.sampled_from(("eg", "eg", "other")))}], "rules": rules}
    if draw(st.booleans()):
        spec["hostnames"] = draw(st.sampled_from((["a.example"], ["a.example", "b.example"], ["*.c.example"])))
    return _object("HTTPRoute", "shop", f"route-{number}", spec, GATEWAY_API)


@st.composite
def _attached(draw: st.DrawFn, kind: str, values: dict[str, tuple[Any, ...]]) -> Json:
    target: Json = {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": draw(st.sampled_from(("route-0", "x")))}
    if draw(st.booleans()):
        target["sectionName"] = "r0"
    if draw(st.booleans()):
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"}
    return _object(kind, "shop", f"{kind.lower()}-1", {"targetRefs": [target], **draw(_some(values, 3))})


def _around() -> list[Json]:
    pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
    found = [
        *surroundings.service("shop", "api", {"https": 443, "http": 80}),
        *surroundings.service("shop", "web", {"https": 443, "http": 80}),
    ]
    found.append(surroundings.secret("shop", "ca", tls_crt=surroundings.CA))
    found.append(surroundings.secret("shop", "odd", one="x", two="y"))
    found.append(surroundings.secret("shop", "pair", **pair))
    found.append(surroundings.config_map("shop", "roots", ca_crt=surroundings.NEXT_CA))
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[Json]:
    found: list[Json] = []
    if draw(st.booleans()):
        names = {"eg": "gateway.envoyproxy.io/gatewayclass-controller", "other": "example.com/other"}
        for name, controller in names.items():
            metadata = {"name": name, "namespace": ""}
            spec: Json = {"controllerName": controller}
            found.append({"apiVersion": GATEWAY_API, "kind": "GatewayClass", "metadata": metadata, "spec": spec})
    for number, name in enumerate(("eg", "other")):
        listeners = [{"name": "http", "port": 80 + number, "protocol": "HTTP"}]
        found.append(_object("Gateway", "shop", name, {"gatewayClassName": name, "listeners": listeners}, GATEWAY_API))
    found += [draw(_backend(name)) for name in ("one", "two")]
    found += [draw(_policy(number)) for number in range(draw(st.integers(0, 3)))]
    found.append(_object("HTTPRouteFilter", "shop", "answer", {"directResponse": {"statusCode": 404}}))
    found.append(_object("HTTPRouteFilter", "shop", "rewrite", {"urlRewrite": {"hostname": {"type": "Backend"}}}))
    if draw(st.booleans()):
        found.append(draw(_attached("BackendTrafficPolicy", TRAFFIC)))
    if draw(st.booleans()):
        found.append(draw(_attached("SecurityPolicy", SECURITY)))
    if draw(st.booleans()):
        validation = {
            "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "roots"}],
            "optional": draw(st.booleans()),
        }
        tls = {"clientValidation": validation, "minVersion": "1.2"}
        target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"}
        found.append(_object("ClientTrafficPolicy", "shop", "clients", {"targetRefs": [target], "tls": tls, "timeout": {}}))
    if draw(st.booleans()):
        backend_tls = draw(_some({key: TLS[key] for key in ("minVersion", "ciphers", "clientCertificateRef")}, 2))
        found.append(_object("EnvoyProxy", "shop", "proxy", {"backendTLS": backend_tls, "logging": {"level": {}}}))
    if draw(st.integers(0, 3)) == 0:
        found.append(_object("EnvoyExtensionPolicy", "shop", "wasm", {"wasm": []}))
        found.append(_object("EnvoyPatchPolicy", "shop", "patch", {"jsonPatches": []}))
    return [*found, *(draw(_route(number)) for number in range(draw(st.integers(1, 3))))]
