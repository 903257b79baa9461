"""API objects as users write them: documents for YAML files."""

from __future__ import annotations

import base64
from typing import Any

from tests.certificates import Certificate

GATEWAY_API = "gateway.networking.k8s.io/v1"
EXPERIMENTAL_API = "gateway.networking.x-k8s.io/v1alpha1"
CLASS = "lasthop"
NAMESPACE = "shop"

Document = dict[str, Any]


def obj(
    api: str, kind: str, path: str, *, annotations: dict[str, str] | None = None, created: str = "", **body: Any
) -> Document:
    """`path` is namespace/name; a name alone is in the namespace `shop`, or nowhere if it starts with a slash."""
    namespace, slash, name = path.rpartition("/")
    metadata: Document = {"name": name}
    if namespace or not slash:
        metadata["namespace"] = namespace or NAMESPACE
    if annotations:
        metadata["annotations"] = annotations
    if created:
        metadata["creationTimestamp"] = created
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **body}


def gateway_class() -> Document:
    return obj(GATEWAY_API, "GatewayClass", f"/{CLASS}", spec={"controllerName": "lasthop.dev/gateway-controller"})


def namespace(name: str) -> Document:
    return obj("v1", "Namespace", f"/{name}")


def gateway(path: str, *listeners: Document, created: str = "", address: str = "127.0.0.1", **spec: Any) -> Document:
    body = {
        "gatewayClassName": CLASS,
        "addresses": [{"type": "IPAddress", "value": address}],
        "listeners": listeners,
        **spec,
    }
    return obj(GATEWAY_API, "Gateway", path, created=created, spec={**body, "listeners": list(listeners)})


def http(port: int, name: str = "http") -> Document:
    return {"name": name, "protocol": "HTTP", "port": port, "allowedRoutes": {"namespaces": {"from": "All"}}}


def https(port: int, secret: str, hostname: str = "") -> Document:
    tls = {"certificateRefs": [{"name": secret}]}
    listener = {**http(port, "https"), "protocol": "HTTPS", "tls": tls}
    return {**listener, "hostname": hostname} if hostname else listener


def listener(name: str, protocol: str, port: int, hostname: str = "", secret: str = "") -> Document:
    """For connections or datagrams; one of protocol TLS ends it if it has a Secret, and lets it through otherwise."""
    document: Document = {"name": name, "protocol": protocol, "port": port, **({"hostname": hostname} if hostname else {})}
    if protocol == "TLS":
        document["tls"] = {"certificateRefs": [{"name": secret}]} if secret else {"mode": "Passthrough"}
    return document


def stream_route(
    kind: str,
    path: str,
    *backends: Document,
    gateway: str = "web",
    listener: str = "",
    hosts: tuple[str, ...] = (),
    created: str = "",
) -> Document:
    parent = {"name": gateway, **({"sectionName": listener} if listener else {})}
    spec: Document = {"parentRefs": [parent], "rules": [{"backendRefs": list(backends)}]}
    return obj(GATEWAY_API, kind, path, created=created, spec={**spec, "hostnames": list(hosts)} if hosts else spec)


def service(path: str, *ports: Document) -> Document:
    return obj("v1", "Service", path, spec={"ports": list(ports) or [{"name": "https", "port": 443}]})


def endpoints(path: str, *ports: int, port_name: str = "https", service: str = "") -> list[Document]:
    """A slice for each port of this machine on which the Service is found."""
    documents = []
    for number, port in enumerate(ports):
        document = obj(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            f"{path}-{number}",
            addressType="IPv4",
            endpoints=[{"addresses": ["127.0.0.1"]}],
            ports=[{"name": port_name, "port": port}],
        )
        document["metadata"]["labels"] = {"kubernetes.io/service-name": service or path.rpartition("/")[2]}
        documents.append(document)
    return documents


MULTICLUSTER = "multicluster.x-k8s.io"


def service_import(path: str, **port: str) -> Document:
    spec = {"type": "ClusterSetIP", "ports": [{"name": "https", "port": 443, **port}]}
    return obj(f"{MULTICLUSTER}/v1beta1", "ServiceImport", path, spec=spec)


def imported_endpoints(path: str, *ports: int) -> list[Document]:
    """The same for a ServiceImport."""
    slices = endpoints(f"{path}-import", *ports, service=path)
    for document in slices:
        document["metadata"]["labels"] = {"multicluster.kubernetes.io/service-name": path}
    return slices


def to_import(name: str, port: int = 443) -> Document:
    return to(name, port, group=MULTICLUSTER, kind="ServiceImport")


def route(
    path: str, *backends: Document, gateway: str = "web", gateway_namespace: str = NAMESPACE, host: str = ""
) -> Document:
    """Makes a route for the host NAME.test, unless `host` is given."""
    spec = {
        "parentRefs": [{"name": gateway, "namespace": gateway_namespace}],
        "hostnames": [host or f"{path.rpartition('/')[2]}.test"],
        "rules": [{"backendRefs": list(backends)}],
    }
    return obj(GATEWAY_API, "HTTPRoute", path, spec=spec)


def traffic_policy(path: str, *services: str, created: str = "", **spec: Any) -> Document:
    """Makes a policy for these Services, or for the Service of the same name."""
    targets = [ref(service, "Service") for service in services or (path.rpartition("/")[2],)]
    return obj(EXPERIMENTAL_API, "XBackendTrafficPolicy", path, created=created, spec={"targetRefs": targets, **spec})


def telemetry_policy(
    path: str, collector: Document | None, *, gateway: str = "web", created: str = "", **tracing: Any
) -> Document:
    """Of a Gateway, to this backendRef; with none, tracing is off."""
    targets = [ref(gateway, "Gateway", "gateway.networking.k8s.io")]
    provider = {"backendRef": collector, **tracing.pop("provider", {})} if collector else {}
    mode = {"mode": "Enabled", "provider": provider} if collector else {"mode": "Disabled"}
    spec = {"targetRefs": targets, "tracing": {**mode, **tracing}}
    return obj(EXPERIMENTAL_API, "XTelemetryPolicy", path, created=created, spec=spec)


def to(name: str, port: int = 443, **more: Any) -> Document:
    return {"name": name, "port": port, **more}


def ref(name: str, kind: str = "ConfigMap", group: str = "") -> Document:
    return {"group": group, "kind": kind, "name": name}


def policy(
    path: str,
    hostname: str,
    *cas: str | Document,
    sans: list[Document] | None = None,
    options: dict[str, str] | None = None,
    service: str = "",
    created: str = "",
    imported: bool = False,
) -> Document:
    """For the Service (or ServiceImport) of the same name; without CAs it is the system store's."""
    validation: Document = {"hostname": hostname}
    if cas:
        validation["caCertificateRefs"] = [ref(ca) if isinstance(ca, str) else ca for ca in cas]
    else:
        validation["wellKnownCACertificates"] = "System"
    if sans:
        validation["subjectAltNames"] = sans
    kind = {"group": MULTICLUSTER, "kind": "ServiceImport"} if imported else {"group": "", "kind": "Service"}
    target = {**kind, "name": service or path.rpartition("/")[2]}
    spec = {"targetRefs": [target], "validation": validation, **({"options": options} if options else {})}
    return obj(GATEWAY_API, "BackendTLSPolicy", path, created=created, spec=spec)


def san(hostname: str) -> Document:
    return {"type": "Hostname", "hostname": hostname}


def uri(value: str) -> Document:
    return {"type": "URI", "uri": value}


def config_map(path: str, pem: str, crl: str | None = None) -> Document:
    return obj("v1", "ConfigMap", path, data={"ca.crt": pem, **({} if crl is None else {"ca.crl": crl})})


def secret(path: str, **content: str) -> Document:
    """Keys are written with an underscore for the dot: `tls_crt`."""
    data = {key.replace("_", "."): base64.b64encode(value.encode()).decode() for key, value in content.items()}
    return obj("v1", "Secret", path, data=data)


def key_pair(path: str, certificate: Certificate, key: Certificate | None = None) -> Document:
    """A Secret with a certificate and its key, or the key of another."""
    return secret(path, tls_crt=certificate.pem, tls_key=(key or certificate).key_pem)


def trust_bundle(name: str, pem: str) -> Document:
    return obj("certificates.k8s.io/v1beta1", "ClusterTrustBundle", f"/{name}", spec={"trustBundle": pem})


def grant(path: str, from_kind: str, from_namespace: str, to_kind: str) -> Document:
    spec = {
        "from": [{"group": "gateway.networking.k8s.io", "kind": from_kind, "namespace": from_namespace}],
        "to": [{"group": "", "kind": to_kind}],
    }
    return obj(GATEWAY_API, "ReferenceGrant", path, spec=spec)


OWN_API = "lasthop.dev/v1alpha1"


def own(name: str, kind: str) -> Document:
    """A reference to one of our own kinds."""
    return ref(name, kind, "lasthop.dev")


def pin_set(path: str, *pins: tuple[str, str], **spec: Any) -> Document:
    """Pins as (type, value)."""
    listed = {"pins": [{"type": kind, "value": value} for kind, value in pins]} if pins else {}
    return obj(OWN_API, "PinSet", path, spec={**listed, **spec})


def waiver(path: str, waives: str, *, expires: str = "", created: str = "") -> Document:
    spec = {"waives": waives, "reason": "the test wants it", **({"expires": expires} if expires else {})}
    return obj(OWN_API, "VerificationWaiver", path, created=created, spec=spec)


def profile(path: str, **backend_tls: Any) -> Document:
    return obj(OWN_API, "GatewayProfile", path, spec={"backendTLS": backend_tls})


def http_profile(path: str, **http: Any) -> Document:
    return obj(OWN_API, "GatewayProfile", path, spec={"http": http})


def with_profile(name: str) -> Document:
    """For a Gateway's spec."""
    return {"infrastructure": {"parametersRef": own(name, "GatewayProfile")}}


def hop(path: str, port: int, *policies: Document, **route_settings: Any) -> list[Document]:
    """Everything on the way from the host NAME.test to a backend on a port of this machine."""
    name = path.rpartition("/")[2]
    return [service(path), *endpoints(path, port), route(path, to(name), **route_settings), *policies]


X_GROUP = "gateway.networking.x-k8s.io"


def xbackend(name: str, port: int, tls: Document | None = None, **spec: Any) -> Document:
    kind: Document = {"type": "ExternalHostname", "externalHostname": {"hostname": "localhost"}}
    body = {**kind, "port": {"number": port}, **({"tls": tls} if tls else {}), **spec}
    return obj(f"{X_GROUP}/v1alpha1", "XBackend", name, spec=body)


def verified(*cas: str | Document, mode: str = "ServerOnly", **more: Any) -> Document:
    refs = [ref(ca) if isinstance(ca, str) else ca for ca in cas]
    return {"mode": mode, "validation": {"hostname": "api.example", "caCertificateRefs": refs}, **more}


def to_xbackend(name: str) -> Document:
    return {"group": X_GROUP, "kind": "XBackend", "name": name}
