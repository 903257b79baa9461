"""Random Ingresses with BackendConfigs, and Gateways with routes and policies, as on GKE."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers import surroundings

NAMESPACES = ("shop", "obs")
GATEWAY_API = "gateway.networking.k8s.io/v1"
GKE = "networking.gke.io/v1"
ANNOTATIONS: dict[str, tuple[str, ...]] = {
    "kubernetes.io/ingress.allow-http": ("true", "false", "no"),
    "ingress.gcp.kubernetes.io/pre-shared-cert": ("a,b",),
    "networking.gke.io/managed-certificates": ("managed",),
    "networking.gke.io/v1beta1.FrontendConfig": ("front", "missing"),
    "kubernetes.io/ingress.global-static-ip-name": ("address",),
    "kubernetes.io/ingress.class": ("gce", "gce-internal", "nginx"),
    "never.heard.of/it": ("1",),
}
SERVICES = ("plain", "tls", "numbered", "junk", "spoken", "missing")


def _names(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@st.composite
def _ingress(draw: st.DrawFn, number: int) -> dict[str, Any]:
    def backend() -> dict[str, Any]:
        port = draw(_names({"number": 443}, {"name": "http"}, {"number": 1}))
        return {"service": {"name": draw(_names(*SERVICES, "Bad_Name")), "port": port}}

    host = draw(_names("a.example", "b.example", "*.c.example", ""))
    kinds = ("Prefix", "Exact", "ImplementationSpecific")
    paths = [
        {"path": draw(_names("/", "/*", "/a", "/a/*", "no", "/a b")), "pathType": draw(_names(*kinds)), "backend": backend()}
        for _ in range(draw(st.integers(1, 2)))
    ]
    spec: dict[str, Any] = {"rules": [{**({"host": host} if host else {}), "http": {"paths": paths}}]}
    if draw(st.booleans()):
        spec["tls"] = [{"secretName": draw(_names("pair", "missing"))}]
    if draw(st.integers(0, 3)) == 0:
        spec["defaultBackend"] = backend()
    chosen = draw(st.lists(st.sampled_from(sorted(ANNOTATIONS)), max_size=3, unique=True))
    annotations = {name: draw(_names(*ANNOTATIONS[name])) for name in chosen}
    metadata = {"name": f"ingress-{number}", "namespace": draw(_names(*NAMESPACES)), "annotations": annotations}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": metadata, "spec": spec}


@st.composite
def _configs(draw: st.DrawFn, namespace: str) -> list[dict[str, Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "timeoutSec": _names(40, 0, -1, "x"),
        "customRequestHeaders": _names({"headers": ["X-A: b", "X-C:{client_region}", "bad header: x"]}),
        "sessionAffinity": _names(
            {"affinityType": "GENERATED_COOKIE", "affinityCookieTtlSec": 50}, {"affinityType": "CLIENT_IP"}
        ),
        "iap": _names({"enabled": True}),
        "cdn": _names({"enabled": True}),
    }
    backend = draw(st.fixed_dictionaries({}, optional=fields))
    redirect = {"enabled": draw(st.booleans()), "responseCodeName": draw(_names("FOUND", "junk", ""))}
    return [
        {
            "apiVersion": "cloud.google.com/v1",
            "kind": "BackendConfig",
            "metadata": {"name": "back", "namespace": namespace},
            "spec": backend,
        },
        {
            "apiVersion": "networking.gke.io/v1beta1",
            "kind": "FrontendConfig",
            "metadata": {"name": "front", "namespace": namespace},
            "spec": {"redirectToHttps": redirect, **draw(_names({}, {"sslPolicy": "modern"}))},
        },
    ]


@st.composite
def _gateway(draw: st.DrawFn, namespace: str) -> dict[str, Any]:
    listeners: list[dict[str, Any]] = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    if draw(st.booleans()):
        tls = draw(
            _names(
                {"mode": "Terminate", "certificateRefs": [{"name": "pair"}]},
                {"mode": "Terminate", "options": {"networking.gke.io/pre-shared-certs": "a"}},
            )
        )
        listeners.append({"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls})
    spec = {"gatewayClassName": draw(_names("gke-l7-global-external-managed", "gke-l7-rilb", "istio")), "listeners": listeners}
    address = draw(_names({}, {"addresses": [{"type": "NamedAddress", "value": "x"}]}))
    metadata = {"name": "edge", "namespace": namespace}
    return {"apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": metadata, "spec": {**spec, **address}}


@st.composite
def _route(draw: st.DrawFn, number: int, namespace: str) -> dict[str, Any]:
    rules = [
        {
            "matches": [{"path": {"type": "PathPrefix", "value": draw(_names("/", f"/r{number}"))}}],
            "backendRefs": [{"name": draw(_names(*SERVICES)), "port": draw(_names(443, 80)), "weight": draw(_names(1, 5))}],
        }
        for _ in range(draw(st.integers(1, 2)))
    ]
    spec = {
        "parentRefs": [{"name": draw(_names("edge", "edge", "other"))}],
        "hostnames": [f"r{number}.example"],
        "rules": rules,
    }
    metadata = {"name": f"route-{number}", "namespace": namespace}
    return {"apiVersion": GATEWAY_API, "kind": "HTTPRoute", "metadata": metadata, "spec": spec}


@st.composite
def _policies(draw: st.DrawFn, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    section = draw(_names({}, {"sectionName": "https"}))
    target = {"group": "", "kind": "Service", "name": draw(_names("spoken", "plain")), **section}
    if draw(st.booleans()):
        trust = draw(
            _names(
                {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]},
                {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "missing"}]},
                {"wellKnownCACertificates": "System"},
                {},
            )
        )
        sans = draw(_names({}, {"subjectAltNames": [{"type": "URI", "uri": "spiffe://a/b"}]}))
        validation = {"hostname": draw(_names("web.internal", "other.internal")), **trust, **sans}
        options = draw(_names({}, {"options": {"example.com/x": "y"}}))
        spec = {"targetRefs": [target], "validation": validation, **options}
        metadata = {"name": "tls", "namespace": namespace}
        found.append({"apiVersion": GATEWAY_API, "kind": "BackendTLSPolicy", "metadata": metadata, "spec": spec})
    others: dict[str, Any] = {
        "GCPBackendPolicy": {"default": {"timeoutSec": 40, "securityPolicy": "armor"}, "targetRef": target},
        "GCPClientTLSPolicy": {"default": {"tlsMode": draw(_names("Disable", "MutualTLS"))}, "targetRefs": [target]},
        "HealthCheckPolicy": {"default": {}, "targetRef": target},
        "GCPAuthzPolicy": {"targetRefs": [target]},
    }
    for kind in draw(st.lists(st.sampled_from(sorted(others)), max_size=2, unique=True)):
        metadata = {"name": kind.lower(), "namespace": namespace}
        found.append({"apiVersion": GKE, "kind": kind, "metadata": metadata, "spec": others[kind]})
    return found


def _around() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    protocols = {
        "plain": None,
        "tls": '{"https":"HTTPS","http":"HTTP2"}',
        "numbered": '{"443":"HTTPS"}',
        "junk": '{"https":"TLS"}',
        "spoken": None,
    }
    for namespace in NAMESPACES:
        for name, value in protocols.items():
            spoken = {"appProtocol": "HTTPS"} if name == "spoken" else {}
            service, endpoints = surroundings.service(namespace, name, {"https": 443, "http": 80}, **spoken)
            annotations = {"cloud.google.com/app-protocols": value} if value else {}
            if name in ("plain", "tls"):
                annotations["cloud.google.com/backend-config"] = '{"default":"back"}'
            service["metadata"] = {**service["metadata"], "annotations": annotations}
            found += [service, endpoints]
        pair = {"tls_crt": surroundings.CERTIFICATE, "tls_key": surroundings.KEY}
        found.append(surroundings.secret(namespace, "pair", **pair))
        found.append(surroundings.config_map(namespace, "ca", ca_crt=surroundings.CA))
    return found


AROUND = _around()


@st.composite
def documents(draw: st.DrawFn) -> list[dict[str, Any]]:
    namespace = draw(_names(*NAMESPACES))
    found = [draw(_ingress(number)) for number in range(draw(st.integers(0, 3)))]
    if draw(st.booleans()) or not found:
        found += draw(_configs(namespace))
    if draw(st.booleans()):
        found.append(draw(_gateway(namespace)))
        found += [draw(_route(number, namespace)) for number in range(draw(st.integers(1, 2)))]
        found += draw(_policies(namespace))
    return found
