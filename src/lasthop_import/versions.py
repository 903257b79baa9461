"""Converts objects of older API versions whose shape is known to the versions that the importers read."""

from __future__ import annotations

from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import GATEWAY_API

RENAMED: Final = {
    **{
        (f"{GATEWAY_API}/{version}", kind): f"{GATEWAY_API}/v1"
        for version in ("v1alpha2", "v1alpha3", "v1beta1")
        for kind in ("GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute", "ReferenceGrant")
    },
    (f"{GATEWAY_API}/v1alpha3", "BackendTLSPolicy"): f"{GATEWAY_API}/v1",
    ("networking.k8s.io/v1beta1", "IngressClass"): "networking.k8s.io/v1",
    ("v1", "Route"): "route.openshift.io/v1",
}
"""Versions with the shape of a later one."""
INGRESSES: Final = ("networking.k8s.io/v1beta1", "extensions/v1beta1")


def converted(value: Json) -> Json:
    """Returns an object in the version that the importers read, unchanged if its shape is not known."""
    match {"spec": None, **value}:
        case {"apiVersion": str(version), "kind": str(kind)} if renamed := RENAMED.get((version, kind)):
            return {**value, "apiVersion": renamed}
        case {"apiVersion": version, "kind": "BackendTLSPolicy", "spec": dict(spec)} if version == f"{GATEWAY_API}/v1alpha2":
            return {**value, "apiVersion": f"{GATEWAY_API}/v1", "spec": _backend_tls(spec)}
        case {"apiVersion": version, "kind": "Ingress", "spec": dict() | None as spec} if version in INGRESSES:
            return {**value, "apiVersion": "networking.k8s.io/v1", "spec": _ingress(spec or {})}
    return value


def _backend_tls(spec: Json) -> Json:
    """Returns the spec of a BackendTLSPolicy: v1alpha2 has one target, and other names in its validation."""
    kept = {key: below for key, below in spec.items() if key not in ("targetRef", "tls")}
    if isinstance(target := spec.get("targetRef"), dict):
        kept["targetRefs"] = [target, *(kept.get("targetRefs") or ())]
    if isinstance(tls := spec.get("tls"), dict):
        names = {"caCertRefs": "caCertificateRefs", "wellKnownCACerts": "wellKnownCACertificates"}
        kept["validation"] = {names.get(key, key): below for key, below in tls.items() if below != ""}
    return kept


def _ingress(spec: Json) -> Json:
    kept = {"defaultBackend" if key == "backend" else key: below for key, below in spec.items()}
    if "backend" in spec:
        kept["defaultBackend"] = _backend(spec["backend"])
    if isinstance(rules := spec.get("rules"), list):
        kept["rules"] = [_rule(rule) for rule in rules]
    return kept


def _rule(rule: Any) -> Any:
    match rule:
        case {"http": {"paths": list() as paths} as http}:
            backends = [
                {**path, "backend": _backend(path.get("backend"))} if isinstance(path, dict) else path for path in paths
            ]
            return {**rule, "http": {**http, "paths": backends}}
        case _:
            return rule


def _backend(backend: Any) -> Any:
    if not isinstance(backend, dict) or "serviceName" not in backend:
        return backend
    port = backend.get("servicePort")
    named = isinstance(port, str) and not port.isdecimal()
    service: Json = {"name": backend["serviceName"]}
    if port is not None:
        service["port"] = {"name": port} if named else {"number": int(port) if isinstance(port, str) else port}
    kept = {key: below for key, below in backend.items() if key not in ("serviceName", "servicePort")}
    return {**kept, "service": service}
