"""Builders of API objects, and a small world of random ones."""

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
from hypothesis import strategies as st

from lasthop.api.kinds import CONTROLLER_NAME, decode, key_of
from lasthop.api.meta import Key, Object, ObjectMeta
from lasthop.api.policies import PolicyTargetReference, RejectedPolicy

NOW = datetime(2026, 11, 15, tzinfo=UTC)
GROUP = "gateway.networking.k8s.io"
OWN_GROUP = "lasthop.dev"
EXPERIMENTAL_GROUP = "gateway.networking.x-k8s.io"
CLASS = "lasthop"


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


def key_pair(name: str) -> tuple[str, str]:
    """(certificate, private key), for Secrets."""
    return _certificate(name, 100)


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


def mk_gateway(path: str, listeners: list[dict[str, Any]] | None = None, gateway_class: str = CLASS, **spec: Any) -> Object:
    listeners = listeners or HTTP_AND_HTTPS[:1]
    return mk("Gateway", path, spec={"gatewayClassName": gateway_class, "listeners": listeners, **spec})


def mk_listener_set(path: str, gateway: str, listeners: list[dict[str, Any]], **more: Any) -> Object:
    namespace, _, name = gateway.rpartition("/")
    return mk("ListenerSet", path, spec={"parentRef": {"name": name, "namespace": namespace}, "listeners": listeners}, **more)


def mk_service(path: str, ports: list[dict[str, Any]] | None = None, **spec: Any) -> Object:
    return mk("Service", path, spec={"ports": ports or [{"name": "https", "port": 443}], **spec})


def mk_slice(path: str, service: str, addresses: list[str], port: int = 9443, port_name: str = "https") -> Object:
    return mk(
        "EndpointSlice",
        path,
        labels={"kubernetes.io/service-name": service},
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
    """A filter; `config` is that of its protocol, but for `forwardBody`."""
    body = {"forwardBody": config.pop("forwardBody")} if "forwardBody" in config else {}
    asked = {"protocol": protocol, "backendRef": backend, protocol.lower(): config, **body}
    return {"type": "ExternalAuth", "externalAuth": asked}


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


def mk_config_map(path: str, ca: str | None) -> Object:
    return mk("ConfigMap", path, data={} if ca is None else {"ca.crt": ca})


def mk_secret(path: str, certificate: str, private: str, ca: str = "") -> Object:
    content = {"tls.crt": certificate, "tls.key": private, "ca.crt": ca}
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
    """A name outside, or with none what the labels app=x select."""
    tls = {"mode": mode, **({"validation": validation} if validation else {}), **spec.pop("tls", {})}
    kind: dict[str, Any] = {"type": "EndpointSelector", "endpointSelector": {"matchLabels": {"app": "x"}}}
    if hostname:
        kind = {"type": "ExternalHostname", "externalHostname": {"hostname": hostname}}
    return mk("XBackend", path, spec={"port": {"number": 443}, **kind, "tls": tls, **spec})


def mk_grant(path: str, from_namespace: str, from_kind: str = "HTTPRoute", to_kind: str = "Service", name: str = "") -> Object:
    to = {"group": _group(to_kind, ""), "kind": to_kind, **({"name": name} if name else {})}
    from_ = {"group": _group(from_kind, GROUP), "kind": from_kind, "namespace": from_namespace}
    return mk("ReferenceGrant", path, spec={"from": [from_], "to": [to]})


def _group(kind: str, otherwise: str) -> str:
    return EXPERIMENTAL_GROUP if kind == "XBackend" else otherwise


def keyed(*objects: Object) -> dict[Key, Object | None]:
    return {key_of(type(obj).__name__, obj): obj for obj in objects}


# --- random worlds: few names, so that objects meet ------------------------------------------------------------------

NAMESPACES = st.sampled_from(["a", "b"])
CAS = st.sampled_from(["good", "other", "expired", "early", "garbage", "empty", "absent"])
HOSTS = st.sampled_from(["x.example", "y.example", "*.example", "*.y.example"])
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
SECTIONS = st.sampled_from(["", "", "https", "plain", "udp", "nowhere"])
CLIENTS = "clients"
"""The ConfigMap with the CA of clients, which no policy names."""
SERVICES = st.sampled_from(["s0", "s1"])


def ca_content(kind: str) -> str | None:
    match kind:
        case "expired":
            return ca_pem("expired", -10)
        case "early":
            return ca_pem("early", 400, 1)
        case "garbage":
            return "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
        case "empty":
            return ""
        case "absent":
            return None
        case _:
            return ca_pem(kind)


PORTS = [
    {"name": "https", "port": 443},
    {"name": "plain", "port": 80, "appProtocol": "kubernetes.io/h2c"},
    {"name": "udp", "port": 53, "protocol": "UDP"},
]
_REFS = st.one_of(
    st.sampled_from([{"group": "", "kind": "ConfigMap", "name": n} for n in ("c0", "c1", "missing")]),
    st.sampled_from(
        [
            {"group": "", "kind": "Secret", "name": "k0"},
            {"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "t0"},
            {"group": "foreign.example", "kind": "Unknown", "name": "u"},
        ]
    ),
    st.builds(own_ref, st.just("PinSet"), st.sampled_from(["n0", "n1", "missing"])),
    st.builds(own_ref, st.just("VerificationWaiver"), st.sampled_from(["w0", "w1"])),
    st.just(own_ref("WellKnownCACertificates", "System")),
)
_SANS = st.sampled_from(
    [
        [],
        [{"type": "Hostname", "hostname": "*.x.example"}],
        [{"type": "URI", "uri": "spiffe://x/y"}, {"type": "Hostname", "hostname": "z.example"}],
        [{"type": "Hostname", "hostname": "10.0.0.1"}],
    ]
)
_OPTIONS = st.sampled_from(
    [{}, {}, {"lasthop.dev/min-tls-version": "1.3"}, {"lasthop.dev/unknown": "x"}, {"foreign.example/x": "y"}]
)


_CLIENT_CAS = st.sampled_from(
    [
        {"group": "", "kind": "ConfigMap", "name": CLIENTS},
        {"group": "", "kind": "ConfigMap", "name": CLIENTS, "namespace": "a"},
        {"group": "", "kind": "ConfigMap", "name": "missing"},
        {"group": "", "kind": "Secret", "name": "k0"},
        {"group": "lasthop.dev", "kind": "PinSet", "name": "p"},
    ]
)
_FRONTENDS = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "validation": st.fixed_dictionaries(
                {
                    "caCertificateRefs": st.lists(_CLIENT_CAS, min_size=1, max_size=2),
                    "mode": st.sampled_from(["AllowValidOnly", "AllowValidOnly", "AllowInsecureFallback"]),
                }
            )
        }
    ),
)
_STREAM_LISTENERS = [
    *STREAMS,
    {"name": "wide", "port": 8443, "protocol": "TLS", "hostname": "*.example", "tls": {"mode": "Passthrough"}},
    {"name": "narrow", "port": 443, "protocol": "TLS", "hostname": "x.example", "tls": {"certificateRefs": [{"name": "k1"}]}},
    {"name": "clash", "port": 53, "protocol": "TCP"},
]
_ALLOWED_LISTENERS = st.sampled_from(
    [None, {"from": "Same"}, {"from": "All"}, {"from": "All"}, {"from": "Selector", "selector": {"matchLabels": {"x": "1"}}}]
)


@st.composite
def gateways(draw: st.DrawFn) -> Object:
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}"
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP", "hostname": draw(st.sampled_from(["", "*.example"]))}]
    if draw(st.booleans()):
        tls = {"certificateRefs": [{"name": draw(st.sampled_from(["k0", "k1"]))}]}
        listeners.append({"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls})  # type: ignore[dict-item]
    listeners += draw(st.lists(st.sampled_from(_STREAM_LISTENERS), max_size=4, unique_by=lambda each: each["name"]))
    listeners = [dict(listener) for listener in listeners]
    for listener in listeners:
        listener["allowedRoutes"] = {"namespaces": {"from": draw(st.sampled_from(["All", "Same"]))}}  # type: ignore[assignment]
    spec: dict[str, Any] = {}
    profile = draw(st.sampled_from(["", "f0", "f0", "f1"]))
    if profile:
        spec["infrastructure"] = {"parametersRef": profile_ref(profile)}
    if draw(st.booleans()):
        ref = {"name": "k0", "namespace": draw(NAMESPACES)}
        spec["tls"] = {"backend": {"clientCertificateRef": ref}}
    if draw(st.booleans()):
        frontend: dict[str, Any] = {"default": draw(_FRONTENDS)}
        if draw(st.booleans()):
            frontend["perPort"] = [{"port": 443, "tls": draw(_FRONTENDS)}]
        spec["tls"] = {**spec.get("tls", {}), "frontend": frontend}
    if allowed := draw(_ALLOWED_LISTENERS):
        spec["allowedListeners"] = {"namespaces": allowed}
    return mk_gateway(path, listeners, draw(st.sampled_from([CLASS, CLASS, "foreign"])), **spec)


_CALLS = st.sampled_from(
    [{}, {"method": {"service": "a.B"}}, {"method": {"service": "a.B", "method": "C"}}, {"method": {"method": "C"}}]
)


@st.composite
def listener_sets(draw: st.DrawFn) -> Object:
    found = []
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        protocol = draw(st.sampled_from(["HTTP", "HTTP", "HTTPS", "HTTPS", "TCP"]))
        listener: dict[str, Any] = {"name": name, "port": draw(st.sampled_from([80, 443, 8080])), "protocol": protocol}
        listener["hostname"] = "" if protocol == "TCP" else draw(st.sampled_from(["", "x.example", "y.example", "*.example"]))
        listener["allowedRoutes"] = {"namespaces": {"from": draw(st.sampled_from(["All", "Same"]))}}
        if protocol == "HTTPS":
            ref = {"name": draw(st.sampled_from(["k0", "k1"])), "namespace": draw(NAMESPACES)}
            listener["tls"] = {"certificateRefs": [ref]}
        found.append(listener)
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['l0', 'l1']))}"
    gateway = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}"
    return mk_listener_set(path, gateway, found, created=draw(TIMES))


_PARENTS = st.fixed_dictionaries(
    {"kind": st.just("Gateway"), "name": st.sampled_from(["g0", "g1"]), "namespace": NAMESPACES}
) | st.fixed_dictionaries(
    {
        "kind": st.just("ListenerSet"),
        "name": st.sampled_from(["l0", "l1"]),
        "namespace": NAMESPACES,
        "sectionName": st.sampled_from(["", "one"]),
    }
)


def _backends(ports: list[int]) -> st.SearchStrategy[dict[str, Any]]:
    weights = st.sampled_from([0, 1, 3])
    kinds = st.sampled_from(["Service", "Service", "Service", "Other"])
    service = {"name": SERVICES, "namespace": NAMESPACES, "port": st.sampled_from(ports), "weight": weights, "kind": kinds}
    xbackend = {"group": st.just(EXPERIMENTAL_GROUP), "kind": st.just("XBackend"), "name": st.sampled_from(["x0", "x1"])}
    more = {"namespace": NAMESPACES, "weight": weights, "port": st.sampled_from([0, 0, 0, 80])}
    return st.one_of(
        st.fixed_dictionaries(service), st.fixed_dictionaries(service), st.fixed_dictionaries({**xbackend, **more})
    )


@st.composite
def routes(draw: st.DrawFn) -> Object:
    backend = _backends([443, 80, 9])
    path = {"type": draw(st.sampled_from(["Exact", "PathPrefix"])), "value": draw(st.sampled_from(["/", "/a", "/a/b"]))}
    kind = draw(st.sampled_from(["HTTPRoute", "GRPCRoute"]))
    match = {"path": path} if kind == "HTTPRoute" else draw(_CALLS)
    rule: dict[str, Any] = {"matches": [match], "backendRefs": draw(st.lists(backend, max_size=2))}
    filters = []
    if draw(st.booleans()):
        mirrored = {"name": draw(SERVICES), "namespace": draw(NAMESPACES), "port": 443}
        filters.append({"type": "RequestMirror", "requestMirror": {"backendRef": mirrored}})
    if kind == "HTTPRoute" and draw(st.booleans()):
        server = {"name": draw(SERVICES), "namespace": draw(NAMESPACES), "port": draw(st.sampled_from([443, 80, 9]))}
        filters.append(mk_external_auth(draw(st.sampled_from(["HTTP", "GRPC"])), server))
    rule["filters"] = filters
    parents = draw(st.lists(_PARENTS, min_size=1, max_size=2))
    hostnames = draw(st.lists(HOSTS, max_size=2, unique=True))
    route = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['r0', 'r1']))}"
    return mk_route(route, "", [], hostnames, parents=parents, rules=[rule], created=draw(TIMES), kind=kind)


@st.composite
def stream_routes(draw: st.DrawFn) -> Object:
    kind = draw(st.sampled_from(["TLSRoute", "TCPRoute", "UDPRoute"]))
    backend = _backends([443, 80, 53, 9])
    hosts = draw(st.lists(st.one_of(HOSTS, st.just("a.p.example")), max_size=2, unique=True)) if kind == "TLSRoute" else []
    return mk_stream_route(
        kind,
        f"{draw(NAMESPACES)}/{draw(st.sampled_from(['r0', 'r1']))}",
        f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}",
        draw(st.lists(backend, min_size=1, max_size=3)),
        hosts,
        draw(st.sampled_from(["", "", "pass", "ends", "tcp", "udp", "http"])),
        created=draw(TIMES),
    )


@st.composite
def policies(draw: st.DrawFn) -> Object:
    target = st.fixed_dictionaries(
        {"group": st.just(""), "kind": st.just("Service"), "name": SERVICES, "sectionName": SECTIONS}
    )
    targets = draw(st.lists(target, min_size=1, max_size=2))
    return mk_policy(
        f"{draw(NAMESPACES)}/{draw(st.sampled_from(['p0', 'p1', 'p2']))}",
        "",
        draw(st.sampled_from(["api.example", "old.example", "10.0.0.1"])),
        draw(st.lists(_REFS, max_size=2)),
        targets=targets,
        validation={"subjectAltNames": draw(_SANS)},
        spec={"options": draw(_OPTIONS)},
        created=draw(TIMES),
    )


@st.composite
def xbackends(draw: st.DrawFn) -> Object:
    mode = draw(st.sampled_from(["None", "ServerOnly", "ServerOnly", "ClientAndServer", "Unknown"]))
    hostname = draw(st.sampled_from(["api.example", "api.example", "10.0.0.1", "s0.a.svc.cluster.local", ""]))
    spec: dict[str, Any] = {"protocol": draw(st.sampled_from(["", "", "TCP", "HTTP2", "HTTP11", "GRPC", "WSS", "QUIC"]))}
    validation = None
    if mode != "None" and draw(st.sampled_from([True, True, True, False])):
        refs = draw(st.lists(_REFS, max_size=2))
        trust = {"caCertificateRefs": refs} if refs else {"wellKnownCACertificates": "System"}
        validation = {"hostname": "api.example", "subjectAltNames": draw(_SANS), **trust}
    if mode == "ClientAndServer":
        spec["tls"] = {"clientCertificateRef": {"name": "k0", "namespace": draw(NAMESPACES)}}
    return mk_xbackend(f"{draw(NAMESPACES)}/{draw(st.sampled_from(['x0', 'x1']))}", hostname, mode, validation, **spec)


@st.composite
def rejected_policies(draw: st.DrawFn) -> Object:
    target = PolicyTargetReference("", "Service", draw(SERVICES), draw(SECTIONS))
    metadata = ObjectMeta(draw(st.sampled_from(["p0", "p3"])), draw(NAMESPACES), creation_timestamp=draw(TIMES))
    return RejectedPolicy(metadata, (target,), "spec.mode is unknown")


@st.composite
def secrets(draw: st.DrawFn) -> Object:
    name = draw(st.sampled_from(["k0", "k1"]))
    certificate, private = key_pair(name)
    if draw(st.booleans()):
        private = key_pair("somebody else")[1]
    return mk_secret(f"{draw(NAMESPACES)}/{name}", certificate, private, ca_content(draw(CAS)) or "")


PINS = ("9MWSei9BgtkqpXxhOxn9hekrUNufXik45PXnm02BxJ0=", ":".join(["AB"] * 32), "cd" * 32)
ALLOWANCES = st.sampled_from(["", "Allow", "Deny"])


@st.composite
def pin_sets(draw: st.DrawFn) -> Object:
    spec: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "c0"}]},
                {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "missing"}]},
                {"caCertificateRefs": [{"group": "foreign.example", "kind": "Unknown", "name": "u"}]},
                {"wellKnownCACertificates": "System"},
                {"certificates": [ca_pem("leaf")]},
                {"certificates": [ca_pem("leaf"), ca_pem("expired", -10)]},
                {"certificates": [ca_pem("expired", -10)]},
                {"certificates": ["-----BEGIN CERTIFICATE-----"]},
            ]
        )
    )
    values = draw(st.lists(st.sampled_from((*PINS, "sha1")), max_size=2))
    return mk_pin_set(f"{draw(NAMESPACES)}/{draw(st.sampled_from(['n0', 'n1']))}", *values, **spec)


@st.composite
def waivers(draw: st.DrawFn) -> Object:
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['w0', 'w1']))}"
    expires = draw(st.sampled_from(["", "2026-11-14T00:00:00Z", "2026-11-17T00:00:00Z", "2026-12-01T00:00:00+01:00"]))
    created = draw(st.sampled_from(["", "2026-11-01T00:00:00Z", "2030-01-01T00:00:00Z"]))
    return mk_waiver(path, draw(st.sampled_from(["All", "Names", "Expiry"])), expires, created)


@st.composite
def profiles(draw: st.DrawFn) -> Object:
    tls: dict[str, Any] = {"waivers": draw(ALLOWANCES), "plaintextBackends": draw(ALLOWANCES)}
    tls |= draw(st.sampled_from([{}, {"maxWaiverDays": 20}, {"minTLSVersion": "1.3"}, {"minTLSVersion": "1.0"}]))
    return mk_profile(
        f"{draw(NAMESPACES)}/f0", backendTLS=tls, externalNameServices=draw(ALLOWANCES), externalHostnames=draw(ALLOWANCES)
    )


@st.composite
def classes(draw: st.DrawFn) -> Object:
    spec: dict[str, Any] = {"controllerName": draw(st.sampled_from([CONTROLLER_NAME, CONTROLLER_NAME, "foreign.example/x"]))}
    ref = draw(st.sampled_from([None, profile_ref("f0", "a"), profile_ref("f1", "a"), profile_ref("f0")]))
    return mk("GatewayClass", CLASS, spec={**spec, **({"parametersRef": ref} if ref else {})})


OBJECTS: st.SearchStrategy[Object] = st.one_of(
    gateways(),
    listener_sets(),
    routes(),
    routes(),
    routes(),
    stream_routes(),
    stream_routes(),
    policies(),
    policies(),
    xbackends(),
    xbackends(),
    rejected_policies(),
    secrets(),
    st.builds(
        lambda ns, s, p: mk_service(f"{ns}/{s}", p), NAMESPACES, SERVICES, st.sampled_from([PORTS, PORTS[:1], PORTS[2:]])
    ),
    st.builds(lambda ns, s, a: mk_slice(f"{ns}/{s}-1", s, a), NAMESPACES, SERVICES, st.sampled_from([[], ["10.1.0.1"]])),
    st.builds(lambda ns, app: mk("EndpointSlice", f"{ns}/x", labels={"app": app}), NAMESPACES, st.sampled_from(["x", "y"])),
    st.builds(
        lambda ns, n, c: mk_config_map(f"{ns}/{n}", ca_content(c)), NAMESPACES, st.sampled_from(["c0", "c1", CLIENTS]), CAS
    ),
    st.builds(
        lambda a, b, k: mk_grant(f"{a}/grant", b, *k),
        NAMESPACES,
        NAMESPACES,
        st.sampled_from(
            [
                *[(kind, "Service") for kind in ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute")],
                *[("Gateway", "Secret"), ("ListenerSet", "Secret"), ("Gateway", "ConfigMap")],
                *[("HTTPRoute", "XBackend"), ("TCPRoute", "XBackend"), ("XBackend", "Secret")],
            ]
        ),
    ),
    st.builds(lambda ns, x: mk("Namespace", ns, labels={"x": x}), NAMESPACES, st.sampled_from(["1", "2"])),
    st.builds(lambda c: mk("ClusterTrustBundle", "t0", spec={"trustBundle": ca_content(c) or ""}), CAS),
    classes(),
    pin_sets(),
    waivers(),
    profiles(),
)
