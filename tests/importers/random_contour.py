"""Random HTTPProxies, ExtensionServices, delegations and Ingresses for Contour, sensible and not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

Json = dict[str, Any]
API = "projectcontour.io/v1"
NAMESPACES = ("shop", "obs")
SERVICE: dict[str, tuple[Any, ...]] = {
    "protocol": ("tls", "h2", "h2c", "https", "", "TLS"),
    "validation": (
        {"caSecret": "ca", "subjectName": "api.internal"},
        {"caSecret": "shop/ca", "subjectName": "api.internal", "subjectNames": ["api.internal", "b.internal"]},
        {"caSecret": "obs/leaf", "subjectName": "10.0.0.1"},
        {"caSecret": "missing", "subjectName": "api.internal"},
        {"caSecret": "pair", "subjectName": "api.internal"},
        {"subjectName": "api.internal"},
        {"caSecret": "ca"},
        "text",
    ),
    "weight": (0, 10, 90, -1, "10"),
    "mirror": (True,),
    "requestHeadersPolicy": (
        {"set": [{"name": "Host", "value": "in.example"}]},
        {"set": [{"name": "bad name", "value": "x"}]},
    ),
    "slowStartPolicy": ({"window": "3s"},),
}
CONDITIONS: tuple[Json, ...] = (
    {"prefix": "/"},
    {"prefix": "/a"},
    {"prefix": "no-slash"},
    {"exact": "/x"},
    {"regex": "/v[0-9]+"},
    {"regex": "("},
    {"header": {"name": "x-a", "exact": "1"}},
    {"header": {"name": "x-b", "present": True}},
    {"header": {"name": "x-c", "notcontains": "1"}},
    {"header": {"name": "bad name", "contains": "1", "ignoreCase": True}},
    {"queryParameter": {"name": "q", "suffix": "z", "ignoreCase": True}},
)
ROUTE: dict[str, tuple[Any, ...]] = {
    "permitInsecure": (True, "yes"),
    "timeoutPolicy": ({"response": "5s"}, {"response": "infinity", "idle": "1s"}, {"response": "soon"}),
    "retryPolicy": ({"count": 3, "retryOn": ["5xx", "odd"], "retriableStatusCodes": [429, "x"]}, {"count": -1}),
    "pathRewritePolicy": (
        {"replacePrefix": [{"replacement": "/"}]},
        {"replacePrefix": [{"prefix": "/z", "replacement": "/y"}]},
    ),
    "requestRedirectPolicy": ({"hostname": "n.example", "statusCode": 301}, {"prefix": "/n", "port": 99999}),
    "directResponsePolicy": ({"statusCode": 404},),
    "requestHeadersPolicy": ({"set": [{"name": "Host", "value": "bad_host"}], "remove": ["x-a"]},),
    "responseHeadersPolicy": ({"set": [{"name": "x-b", "value": "%REQ(a)%"}]},),
    "loadBalancerPolicy": ({"strategy": "Cookie"}, {"strategy": "RequestHash", "requestHashPolicies": []}),
    "authPolicy": ({"disabled": True},),
    "rateLimitPolicy": ({"local": {"requests": 1}},),
    "neverHeardOf": (1,),
}


@st.composite
def _service(draw: st.DrawFn) -> Json:
    name = draw(st.sampled_from(("api", "marked", "missing", "Bad_Name", "outside")))
    return {"name": name, "port": draw(st.sampled_from((443, 80, 1, "443"))), **draw(surroundings.some(SERVICE, 3))}


@st.composite
def _routes(draw: st.DrawFn) -> list[Json]:
    found = []
    for _ in range(draw(st.integers(1, 3))):
        route = draw(surroundings.some(ROUTE, 3))
        if draw(st.booleans()):
            route["conditions"] = draw(st.lists(st.sampled_from(CONDITIONS), max_size=2))
        route["services"] = [draw(_service()) for _ in range(draw(st.integers(1, 2)))]
        found.append(route)
    return found


def _metadata(draw: st.DrawFn, name: str) -> Json:
    found: Json = {"name": name, "namespace": draw(st.sampled_from(NAMESPACES))}
    if draw(st.booleans()):
        found["creationTimestamp"] = f"2024-01-0{draw(st.integers(1, 9))}T00:00:00Z"
    return found


@st.composite
def _proxy(draw: st.DrawFn, number: int) -> Json:
    spec: Json = {"routes": draw(_routes())}
    if draw(st.integers(0, 3)):
        host: Json = {"fqdn": draw(st.sampled_from(("a.example", "*.b.example", "bad_host", f"own-{number}.example")))}
        if draw(st.booleans()):
            secret = draw(st.sampled_from(("pair", "shop/pair", "missing")))
            host["tls"] = draw(st.sampled_from(({"secretName": secret}, {"passthrough": True}, {})))
            if draw(st.integers(0, 3)) == 0:
                validation = {"caSecret": "ca", "optionalClientCertificate": draw(st.booleans())}
                host["tls"] = {**host["tls"], "clientValidation": validation}
        if draw(st.integers(0, 3)) == 0:
            reference = {"name": draw(st.sampled_from(("auth", "absent"))), "namespace": "shop"}
            host["authorization"] = {"extensionRef": reference, "serviceType": draw(st.sampled_from(("grpc", "http")))}
        if draw(st.integers(0, 3)) == 0:
            host["corsPolicy"] = {"allowOrigin": ["*"], "allowMethods": ["GET", "BREW"], "maxAge": "10m"}
        spec["virtualhost"] = host
        if draw(st.integers(0, 3)) == 0:
            spec["tcpproxy"] = {"services": [draw(_service())]}
    if draw(st.booleans()):
        namespace = draw(st.sampled_from(NAMESPACES))
        conditions = draw(st.lists(st.sampled_from(CONDITIONS[:3]), max_size=1))
        spec["includes"] = [{"name": f"proxy-{draw(st.integers(0, 3))}", "namespace": namespace, "conditions": conditions}]
    return {"apiVersion": API, "kind": "HTTPProxy", "metadata": _metadata(draw, f"proxy-{number}"), "spec": spec}


@st.composite
def _ingress(draw: st.DrawFn) -> Json:
    service = {"name": draw(st.sampled_from(("api", "marked", "missing"))), "port": {"number": 443}}
    path = {"path": draw(st.sampled_from(("/", "/a", "/["))), "pathType": draw(st.sampled_from(("Prefix", "Exact", "")))}
    rule = {"host": "ingress.example", "http": {"paths": [{**path, "backend": {"service": service}}]}}
    spec: Json = {"rules": [rule]}
    if draw(st.booleans()):
        spec["tls"] = [{"hosts": ["ingress.example"], "secretName": "pair"}]
    metadata = _metadata(draw, "ingress")
    metadata["annotations"] = {"ingress.kubernetes.io/force-ssl-redirect": draw(st.sampled_from(("true", "on")))}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


def _around() -> list[Json]:
    found: list[Json] = []
    pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
    for namespace in NAMESPACES:
        found += surroundings.service(namespace, "api", {"https": 443, "http": 80})
        marked = surroundings.service(namespace, "marked", {"https": 443, "http": 80})
        marked[0]["metadata"]["annotations"] = {"projectcontour.io/upstream-protocol.tls": "https"}
        found += marked
        metadata = {"name": "outside", "namespace": namespace}
        external = {"type": "ExternalName", "externalName": "x.example", "ports": [{"name": "https", "port": 443}]}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": external})
        found.append(surroundings.secret(namespace, "ca", ca_crt=surroundings.CA))
        found.append(surroundings.secret(namespace, "leaf", ca_crt=surroundings.LEAF))
        found.append(surroundings.secret(namespace, "pair", **pair))
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[Json]:
    metadata = {"name": "shared", "namespace": "shop"}
    delegations = [{"secretName": draw(st.sampled_from(("ca", "pair"))), "targetNamespaces": ["*"]}]
    spec: Json = {"delegations": delegations}
    found = [{"apiVersion": API, "kind": "TLSCertificateDelegation", "metadata": metadata, "spec": spec}]
    extension = draw(surroundings.some({"protocol": ("h2", "h2c"), "validation": SERVICE["validation"]}, 2))
    extension["services"] = [{"name": draw(st.sampled_from(("api", "missing"))), "port": 443}]
    auth = {"name": "auth", "namespace": "shop"}
    version = "projectcontour.io/v1alpha1"
    found.append({"apiVersion": version, "kind": "ExtensionService", "metadata": auth, "spec": extension})
    if draw(st.integers(0, 3)) == 0:
        envoy = {"clientCertificate": {"name": "pair", "namespace": "shop"}}
        name = {"name": "contour", "namespace": "shop"}
        found.append({"apiVersion": version, "kind": "ContourConfiguration", "metadata": name, "spec": {"envoy": envoy}})
    if draw(st.booleans()):
        found.append(draw(_ingress()))
    return [*found, *(draw(_proxy(number)) for number in range(draw(st.integers(1, 4))))]
