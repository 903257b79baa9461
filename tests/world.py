"""Builders of API objects."""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lasthop.base.api.kinds import CONTROLLER_NAME, MULTICLUSTER_API, decode
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import RejectedPolicy
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.tls import SystemStore

NOW = datetime(2026, 11, 15, tzinfo=UTC)
GROUP = "gateway.networking.k8s.io"
OWN_GROUP = "lasthop.dev"
EXPERIMENTAL_GROUP = "gateway.networking.x-k8s.io"
CLASS = "lasthop"
STORE = SystemStore("/system.pem", "digest")
UNREAD = (Unknown(provable=False, namespace="", why="x.yaml:1 cannot be fully read", file="x.yaml"),)


@functools.cache
def ca_pem(name: str, days: int = 365, begins: int = -365) -> str:
    """A CA certificate; negative days: it expired that long ago. `begins`: in days, too."""
    return _certificate(name, days, begins)[0]


@functools.cache
def _certificate(name: str, days: int, begins: int = -365) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    end = NOW + timedelta(days=days)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(NOW + timedelta(days=begins), end - timedelta(days=365)))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


@functools.cache
def crl_pem(name: str, days: int = 30, begins: int = -1) -> str:
    """The revocation list of a CA that `ca_pem` makes; negative days: the next one was due that long ago."""
    private = serialization.load_pem_private_key(_certificate(name, 365, -365)[1].encode(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    end = NOW + timedelta(days=days)
    begin = min(NOW + timedelta(days=begins), end - timedelta(days=1))
    crl = x509.CertificateRevocationListBuilder(issuer, begin, end).sign(private, hashes.SHA256())
    return crl.public_bytes(serialization.Encoding.PEM).decode()


def key_pair(name: str, days: int = 100, begins: int = -365) -> tuple[str, str]:
    """(certificate, private key), for Secrets, with dates as in `ca_pem`."""
    return _certificate(name, days, begins)


def mk(kind: str, path: str, created: str = "", labels: Mapping[str, str] | None = None, **fields: Any) -> Object:
    """An object; `path` is namespace/name, or name for cluster-scoped kinds."""
    namespace, _, name = path.rpartition("/")
    metadata = {"name": name, "namespace": namespace, "generation": 1, "labels": dict(labels or {})}
    return decode(kind, {"metadata": {**metadata, "creationTimestamp": created}, **fields})


def mk_class(name: str = CLASS, controller: str = CONTROLLER_NAME) -> Object:
    return mk("GatewayClass", name, spec={"controllerName": controller})


_ALL = {"namespaces": {"from": "All"}}
HTTP_AND_HTTPS: list[dict[str, Any]] = [
    {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": _ALL},
    {"name": "https", "port": 443, "protocol": "HTTPS", "allowedRoutes": _ALL, "tls": {"certificateRefs": [{"name": "k0"}]}},
]


STREAMS: list[dict[str, Any]] = [
    {"name": "pass", "port": 8443, "protocol": "TLS", "hostname": "*.p.example", "tls": {"mode": "Passthrough"}},
    {"name": "ends", "port": 8443, "protocol": "TLS", "tls": {"certificateRefs": [{"name": "k0"}]}},
    {"name": "tcp", "port": 53, "protocol": "TCP"},
    {"name": "udp", "port": 53, "protocol": "UDP"},
]

PORTS = [
    {"name": "https", "port": 443},
    {"name": "plain", "port": 80, "appProtocol": "kubernetes.io/h2c"},
    {"name": "udp", "port": 53, "protocol": "UDP"},
]
PINS = ("9MWSei9BgtkqpXxhOxn9hekrUNufXik45PXnm02BxJ0=", ":".join(["AB"] * 32), "cd" * 32)
CLIENTS = "clients"
"""The ConfigMap with the CA of clients, which no policy names."""


def mk_gateway(path: str, listeners: list[dict[str, Any]] | None = None, gateway_class: str = CLASS, **spec: Any) -> Object:
    listeners = listeners or HTTP_AND_HTTPS[:1]
    return mk("Gateway", path, spec={"gatewayClassName": gateway_class, "listeners": listeners, **spec})


def mk_listener_set(path: str, gateway: str, listeners: list[dict[str, Any]], **more: Any) -> Object:
    namespace, _, name = gateway.rpartition("/")
    return mk("ListenerSet", path, spec={"parentRef": {"name": name, "namespace": namespace}, "listeners": listeners}, **more)


def mk_service(path: str, ports: list[dict[str, Any]] | None = None, **spec: Any) -> Object:
    return mk("Service", path, spec={"ports": ports or [{"name": "https", "port": 443}], **spec})


def mk_service_import(path: str, ports: list[dict[str, Any]] | None = None) -> Object:
    return mk("ServiceImport", path, spec={"type": "ClusterSetIP", "ports": ports or [{"name": "https", "port": 443}]})


def import_ref(name: str, port: int = 443, **more: Any) -> dict[str, Any]:
    return {"group": MULTICLUSTER_API, "kind": "ServiceImport", "name": name, "port": port, **more}


def mk_slice(
    path: str, service: str, addresses: list[str], port: int = 9443, port_name: str = "https", *, imported: bool = False
) -> Object:
    """Of a Service, or of a ServiceImport."""
    return mk(
        "EndpointSlice",
        path,
        labels={f"{'multicluster.' if imported else ''}kubernetes.io/service-name": service},
        addressType="IPv4",
        endpoints=[{"addresses": [address]} for address in addresses],
        ports=[{"name": port_name, "port": port}],
    )


def mk_route(
    path: str, gateway: str, backends: list[dict[str, Any]], hostnames: list[str] | None = None, **more: Any
) -> Object:
    namespace, _, name = gateway.rpartition("/")
    parent = {"name": name, **({"namespace": namespace} if namespace else {})}
    rules = more.pop("rules", [{"backendRefs": backends}])
    parents = more.pop("parents", [parent])
    kind = more.pop("kind", "HTTPRoute")
    return mk(kind, path, spec={"parentRefs": parents, "hostnames": hostnames or [], "rules": rules}, **more)


def mk_external_auth(protocol: str, backend: dict[str, Any], **config: Any) -> dict[str, Any]:
    """Makes a filter; `config` is the configuration of its protocol, except `forwardBody`."""
    body = {"forwardBody": config.pop("forwardBody")} if "forwardBody" in config else {}
    fields = {"protocol": protocol, "backendRef": backend, protocol.lower(): config, **body}
    return {"type": "ExternalAuth", "externalAuth": fields}


def mk_stream_route(
    kind: str,
    path: str,
    gateway: str,
    backends: list[dict[str, Any]],
    hostnames: list[str] | None = None,
    section: str = "",
    **more: Any,
) -> Object:
    namespace, _, name = gateway.rpartition("/")
    parent = {"name": name, "namespace": namespace, "sectionName": section}
    return mk(
        kind, path, spec={"parentRefs": [parent], "hostnames": hostnames or [], "rules": [{"backendRefs": backends}]}, **more
    )


def mk_policy(path: str, service: str, hostname: str, cas: list[Any] | None = None, section: str = "", **more: Any) -> Object:
    refs = [{"group": "", "kind": "ConfigMap", "name": c} if isinstance(c, str) else c for c in (cas or [])]
    validation: dict[str, Any] = {"hostname": hostname, **more.pop("validation", {})}
    validation |= {"caCertificateRefs": refs} if refs else {"wellKnownCACertificates": "System"}
    target = {"group": "", "kind": "Service", "name": service, **({"sectionName": section} if section else {})}
    targets = more.pop("targets", [target])
    spec = {"targetRefs": targets, "validation": validation, **more.pop("spec", {})}
    return mk("BackendTLSPolicy", path, spec=spec, **more)


def mk_config_map(path: str, ca: str | None, crl: str | None = None) -> Object:
    content = {"ca.crt": ca, "ca.crl": crl}
    return mk("ConfigMap", path, data={key: text for key, text in content.items() if text is not None})


def mk_secret(path: str, certificate: str, private: str, ca: str = "", crl: str | None = None) -> Object:
    content = {"tls.crt": certificate, "tls.key": private, "ca.crt": ca, **({} if crl is None else {"ca.crl": crl})}
    return mk("Secret", path, data={key: base64.b64encode(value.encode()).decode() for key, value in content.items()})


def profile_ref(name: str, namespace: str = "") -> dict[str, str]:
    where = {"namespace": namespace} if namespace else {}
    return {"group": OWN_GROUP, "kind": "GatewayProfile", "name": name, **where}


def mk_profile(path: str, **spec: Any) -> Object:
    return mk("GatewayProfile", path, spec=spec)


def mk_pin_set(path: str, *values: str, **spec: Any) -> Object:
    """Pins of keys."""
    pins = {"pins": [{"type": "SPKI", "value": value} for value in values]} if values else {}
    return mk("PinSet", path, spec={**pins, **spec})


def mk_waiver(path: str, waives: str = "All", expires: str = "", created: str = "") -> Object:
    spec = {"waives": waives, "reason": "for now", **({"expires": expires} if expires else {})}
    return mk("VerificationWaiver", path, created=created, spec=spec)


def own_ref(kind: str, name: str) -> dict[str, str]:
    return {"group": OWN_GROUP, "kind": kind, "name": name}


def mk_xbackend(path: str, hostname: str = "", mode: str = "None", validation: Any = None, **spec: Any) -> Object:
    """Makes an XBackend for an external hostname, or without one for the Pods with the label app=x."""
    tls = {"mode": mode, **({"validation": validation} if validation else {}), **spec.pop("tls", {})}
    kind: dict[str, Any] = {"type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "x"}}}
    if hostname:
        kind = {"type": "ExternalHostname", "externalHostname": {"hostname": hostname}}
    return mk("XBackend", path, spec={"port": {"number": 443}, **kind, "tls": tls, **spec})


def mk_pod(
    path: str, ip: str, labels: Mapping[str, str], *, ready: bool = True, phase: str = "Running", leaving: bool = False
) -> Object:
    namespace, _, name = path.rpartition("/")
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}
    status = {"podIPs": [{"ip": ip}] if ip else [], "phase": phase, "conditions": conditions}
    return decode("Pod", {"metadata": metadata, "status": status})


def mk_traffic_policy(path: str, *targets: dict[str, str], created: str = "", **spec: Any) -> Object:
    return mk("XBackendTrafficPolicy", path, created, spec={"targetRefs": list(targets), **spec})


def mk_telemetry_policy(
    path: str, gateways: list[str], collector: dict[str, Any] | None, created: str = "", **tracing: Any
) -> Object:
    """With no collector tracing is off."""
    targets = [{"group": GROUP, "kind": "Gateway", "name": name} for name in gateways]
    provider = {"backendRef": collector, **tracing.pop("provider", {})}
    mode = {"mode": "Enabled", "provider": provider} if collector else {"mode": "Disabled"}
    return mk("XTelemetryPolicy", path, created, spec={"targetRefs": targets, "tracing": {**mode, **tracing}})


def mk_grant(path: str, from_namespace: str, from_kind: str = "HTTPRoute", to_kind: str = "Service", name: str = "") -> Object:
    to = {"group": _group(to_kind, ""), "kind": to_kind, **({"name": name} if name else {})}
    from_ = {"group": _group(from_kind, GROUP), "kind": from_kind, "namespace": from_namespace}
    return mk("ReferenceGrant", path, spec={"from": [from_], "to": [to]})


def _group(kind: str, otherwise: str) -> str:
    groups = {"XBackend": EXPERIMENTAL_GROUP, "XTelemetryPolicy": EXPERIMENTAL_GROUP, "ServiceImport": MULTICLUSTER_API}
    return groups.get(kind, otherwise)


def key(obj: Object) -> Key:
    kind = "BackendTLSPolicy" if isinstance(obj, RejectedPolicy) else type(obj).__name__
    return Key(kind, obj.metadata.namespace, obj.metadata.name)


def keyed(*objects: Object) -> dict[Key, Object | None]:
    return {key(obj): obj for obj in objects}
