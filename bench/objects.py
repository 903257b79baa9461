"""Creates the objects for the benches on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.lasthop import GATEWAY_CLASS

Object = dict[str, Any]

API = "gateway.networking.k8s.io/v1"
NAMESPACE = "bench"
GATEWAY = "gw"


def mk(version: str, kind: str, name: str, **content: Any) -> Object:
    namespace = {} if kind == "Namespace" else {"namespace": NAMESPACE}
    labels = content.pop("labels", {})
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels, **namespace}, **content}


def gateway() -> Iterator[Object]:
    yield mk("v1", "Namespace", NAMESPACE)
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    yield mk(API, "Gateway", GATEWAY, spec={"gatewayClassName": GATEWAY_CLASS, "listeners": [listener]})


def ca(pem: str) -> Object:
    return mk("v1", "ConfigMap", "ca", data={"ca.crt": pem})


def backend(name: str, host: str, address: str, port: int, sni: str) -> Iterator[Object]:
    """A Service with one endpoint that is not a Pod, its route and its policy. Headless, so that nodes need do nothing."""
    yield mk("v1", "Service", name, spec={"clusterIP": "None", "ports": [{"name": "https", "port": 443, "targetPort": port}]})
    yield mk(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        name,
        labels={"kubernetes.io/service-name": name},
        addressType="IPv4",
        ports=[{"name": "https", "port": port, "protocol": "TCP"}],
        endpoints=[{"addresses": [address], "conditions": {"ready": True}}],
    )
    rules = [{"backendRefs": [{"name": name, "port": 443}]}]
    yield mk(API, "HTTPRoute", name, spec={"parentRefs": [{"name": GATEWAY}], "hostnames": [host], "rules": rules})
    yield policy(name, sni)


def policy(name: str, sni: str) -> Object:
    reference = {"group": "", "kind": "ConfigMap", "name": "ca"}
    target = {"group": "", "kind": "Service", "name": name}
    spec = {"targetRefs": [target], "validation": {"hostname": sni, "caCertificateRefs": [reference]}}
    return mk(API, "BackendTLSPolicy", name, spec=spec)
