"""Random worlds: objects of every kind, of few names so that they meet, and edits to a world in which everything works."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import strategies as st

from lasthop.base.api.kinds import CONTROLLER_NAME, MULTICLUSTER_API, SERVICE_GROUPS
from lasthop.base.api.meta import Object, ObjectMeta
from lasthop.base.api.policies import BackendTLSPolicy, PolicyTargetReference, RejectedPolicy
from lasthop.engine.plan.tls_options import OPTIONS
from tests.certificates import Certificate
from tests.world import (
    CLASS,
    CLIENTS,
    EXPERIMENTAL_GROUP,
    HTTP_AND_HTTPS,
    NOW,
    PINS,
    PORTS,
    STREAMS,
    ca_pem,
    crl_pem,
    import_ref,
    key_pair,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_external_auth,
    mk_gateway,
    mk_grant,
    mk_listener_set,
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_secret,
    mk_service,
    mk_service_import,
    mk_slice,
    mk_stream_route,
    mk_telemetry_policy,
    mk_traffic_policy,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

NAMESPACES = st.sampled_from(["a", "b"])
CAS = st.sampled_from(["good", "other", "weak", "expired", "early", "garbage", "empty", "absent"])
CRLS = st.sampled_from([None, None, crl_pem("good"), crl_pem("good", -1), crl_pem("good", 30, 2), ""])
"""Revocation lists: none, a valid one, one out of date, one that is not valid yet, and invalid content."""
HOSTS = st.sampled_from(["x.example", "y.example", "*.example", "*.y.example"])
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])
SECTIONS = st.sampled_from(["", "", "https", "plain", "udp", "nowhere"])
SERVICES = st.sampled_from(["s0", "s1"])
APP_PROTOCOLS = {
    "TLS": ("HTTPS", "tls", "kubernetes.io/wss", "x.example/grpcs"),
    "plaintext": ("http", "kubernetes.io/h2c", "kubernetes.io/ws"),
    "": ("", "grpc", "x.example/tls2"),
}
"""By what a port says of itself with them."""
_PORTS = st.sampled_from(
    [
        *([PORTS] * 3 + [PORTS[:1], PORTS[2:]]),
        *([{**PORTS[0], "appProtocol": name}, *PORTS[1:]] for names in APP_PROTOCOLS.values() for name in names),
        *([PORTS[0], {**PORTS[1], "appProtocol": name}] for name in ("", *APP_PROTOCOLS["TLS"])),
    ]
)
_SERVICE_KINDS = st.sampled_from(
    [{"group": group, "kind": kind} for kind, group in (*SERVICE_GROUPS.items(), ("Service", ""))]
)


_KEY = rsa.generate_private_key(65537, 1024)
WEAK_CA = Certificate("weak", ca=True, key=_KEY, valid=(NOW - timedelta(days=99), NOW + timedelta(days=99))).pem
"""Good in all but its key."""


def ca_content(kind: str) -> str | None:
    match kind:
        case "weak":
            return WEAK_CA
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
    [{}] * len(OPTIONS)
    + [{f"lasthop.dev/{option.name}": option.values[-1]} for option in OPTIONS if option.values]
    + [{"lasthop.dev/client-certificate": name} for name in ("k0", "k1", "missing", "b/k0", "../b/k0")]
    + [{"lasthop.dev/unknown": "x"}, {"lasthop.dev/min-tls-version": "9"}, {"foreign.example/x": "y"}]
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
_FRONTENDS: st.SearchStrategy[dict[str, Any]] = st.one_of(
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
def _servers(draw: st.DrawFn, ports: tuple[int, ...]) -> dict[str, Any]:
    """The reference of a filter."""
    server = {"name": draw(SERVICES), "namespace": draw(NAMESPACES), "port": draw(st.sampled_from(ports))}
    return {**server, **draw(_SERVICE_KINDS)}


# Strategies are made once: Hypothesis validates each new one, which takes longer than to draw from it.
_ANY_SERVER = _servers((443, 80, 9))
_MIRROR = _servers((443,))
_AUTH_SERVER = st.builds(mk_external_auth, st.sampled_from(["HTTP", "GRPC"]), _ANY_SERVER)
_ODD_FILTER = st.just({"type": "ExtensionRef", "extensionRef": {"group": "x.example", "kind": "Auth", "name": "x"}})
_LISTENER_FILTERS = st.one_of(
    st.just([]), st.lists(_AUTH_SERVER, min_size=1, max_size=2), st.lists(_ODD_FILTER, min_size=1, max_size=1)
)


@st.composite
def _asking(draw: st.DrawFn) -> dict[str, Any]:
    """Filters of a listener, if it has any."""
    requests = draw(_LISTENER_FILTERS)
    return {"filters": {"requests": requests}} if requests else {}


@st.composite
def gateways(draw: st.DrawFn) -> Object:
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}"
    hostname = draw(st.sampled_from(["", "*.example"]))
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP", "hostname": hostname, **draw(_asking())}]
    if draw(st.booleans()):
        tls = {"certificateRefs": [{"name": draw(st.sampled_from(["k0", "k1"]))}]}
        listeners.append({"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls})
    listeners += draw(st.lists(st.sampled_from(_STREAM_LISTENERS), max_size=4, unique_by=lambda listener: listener["name"]))
    listeners = [dict(listener) for listener in listeners]
    for listener in listeners:
        listener["allowedRoutes"] = {"namespaces": {"from": draw(st.sampled_from(["All", "Same"]))}}
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
    listeners = []
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        protocol = draw(st.sampled_from(["HTTP", "HTTP", "HTTPS", "HTTPS", "TCP"]))
        listener: dict[str, Any] = {"name": name, "port": draw(st.sampled_from([80, 443, 8080])), "protocol": protocol}
        listener["hostname"] = "" if protocol == "TCP" else draw(st.sampled_from(["", "x.example", "y.example", "*.example"]))
        listener["allowedRoutes"] = {"namespaces": {"from": draw(st.sampled_from(["All", "Same"]))}}
        listener |= draw(_asking()) if protocol != "TCP" else {}
        if protocol == "HTTPS":
            ref = {"name": draw(st.sampled_from(["k0", "k1"])), "namespace": draw(NAMESPACES)}
            listener["tls"] = {"certificateRefs": [ref]}
        listeners.append(listener)
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['l0', 'l1']))}"
    gateway = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}"
    return mk_listener_set(path, gateway, listeners, created=draw(TIMES))


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


@functools.cache
def _backends(ports: tuple[int, ...]) -> st.SearchStrategy[dict[str, Any]]:
    weights = st.sampled_from([0, 1, 3])
    kinds = st.sampled_from(["Service", "Service", "Service", "Other"])
    service = {"name": SERVICES, "namespace": NAMESPACES, "port": st.sampled_from(ports), "weight": weights, "kind": kinds}
    xbackend = {"group": st.just(EXPERIMENTAL_GROUP), "kind": st.just("XBackend"), "name": st.sampled_from(["x0", "x1"])}
    more = {"namespace": NAMESPACES, "weight": weights, "port": st.sampled_from([0, 0, 0, 80])}
    imported = {**service, "group": st.just(MULTICLUSTER_API), "kind": st.just("ServiceImport"), "name": SERVICES}
    return st.one_of(
        st.fixed_dictionaries(service),
        st.fixed_dictionaries(service),
        st.fixed_dictionaries({**xbackend, **more}),
        st.fixed_dictionaries(imported),
    )


@st.composite
def routes(draw: st.DrawFn) -> Object:
    backend = _backends((443, 80, 9))
    path = {"type": draw(st.sampled_from(["Exact", "PathPrefix"])), "value": draw(st.sampled_from(["/", "/a", "/a/b"]))}
    kind = draw(st.sampled_from(["HTTPRoute", "GRPCRoute"]))
    match = {"path": path} if kind == "HTTPRoute" else draw(_CALLS)
    rule: dict[str, Any] = {"matches": [match], "backendRefs": draw(st.lists(backend, max_size=2))}
    filters = []
    if draw(st.booleans()):
        mirrored = draw(_MIRROR)
        filters.append({"type": "RequestMirror", "requestMirror": {"backendRef": mirrored}})
    if kind == "HTTPRoute" and draw(st.booleans()):
        server = draw(_ANY_SERVER)
        filters.append(mk_external_auth(draw(st.sampled_from(["HTTP", "GRPC"])), server))
    rule["filters"] = filters
    parents = draw(st.lists(_PARENTS, min_size=1, max_size=2))
    hostnames = draw(st.lists(HOSTS, max_size=2, unique=True))
    route = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['r0', 'r1']))}"
    return mk_route(route, "", [], hostnames, parents=parents, rules=[rule], created=draw(TIMES), kind=kind)


_STREAM_HOSTS = st.lists(st.one_of(HOSTS, st.just("a.p.example")), max_size=2, unique=True)


@st.composite
def stream_routes(draw: st.DrawFn) -> Object:
    kind = draw(st.sampled_from(["TLSRoute", "TCPRoute", "UDPRoute"]))
    backend = _backends((443, 80, 53, 9))
    hosts = draw(_STREAM_HOSTS) if kind == "TLSRoute" else []
    return mk_stream_route(
        kind,
        f"{draw(NAMESPACES)}/{draw(st.sampled_from(['r0', 'r1']))}",
        f"{draw(NAMESPACES)}/{draw(st.sampled_from(['g0', 'g1']))}",
        draw(st.lists(backend, min_size=1, max_size=3)),
        hosts,
        draw(st.sampled_from(["", "", "pass", "ends", "tcp", "udp", "http"])),
        created=draw(TIMES),
    )


_TARGETS = st.lists(st.fixed_dictionaries({"name": SERVICES, "sectionName": SECTIONS}), min_size=1, max_size=2)


@st.composite
def policies(draw: st.DrawFn) -> Object:
    targets = [{**draw(_SERVICE_KINDS), **target} for target in draw(_TARGETS)]
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


_TRAFFIC_TARGETS = st.one_of(
    st.fixed_dictionaries({"group": st.just(""), "kind": st.just("Service"), "name": SERVICES}),
    st.fixed_dictionaries({"group": st.just(EXPERIMENTAL_GROUP), "kind": st.just("XBackend"), "name": st.just("x0")}),
)
_CONSTRAINTS = st.sampled_from(
    [{}, {"budget": {"percent": 5, "interval": "1m"}}, {"minRetryRate": {"count": 1, "interval": "0s"}}]
)
_SESSIONS = st.sampled_from(
    [
        {"type": "Cookie", "cookie": {}},
        {"type": "Header", "header": {"name": "x-s"}},
        {"type": "Cookie", "absoluteTimeout": "1h", "cookie": {"name": "c"}},
    ]
)


@st.composite
def traffic_policies(draw: st.DrawFn) -> Object:
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["retryConstraint"] = draw(_CONSTRAINTS)
    if draw(st.booleans()):
        spec["sessionPersistence"] = draw(_SESSIONS)
    path = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['t0', 't1']))}"
    return mk_traffic_policy(path, *draw(st.lists(_TRAFFIC_TARGETS, min_size=1, max_size=2)), created=draw(TIMES), **spec)


_COLLECTORS = st.none() | _backends((443, 80, 9))


@st.composite
def telemetry_policies(draw: st.DrawFn) -> Object:
    to = draw(_COLLECTORS)
    collector = {name: value for name, value in to.items() if name != "weight"} if to else None
    tracing: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"samplingRate": {"numerator": 1}, "parentBasedSampling": {"mode": "Disabled"}},
                {"parentBasedSampling": {"mode": "Enabled", "samplingRate": {"numerator": 1, "denominator": 3}}},
                {"attributes": [{"name": "a", "sourceType": "Literal", "literalValue": "%"}]},
                {"provider": {"headers": [{"name": "te", "value": "x"}]}},
            ]
        )
    )
    path, gateways = f"{draw(NAMESPACES)}/{draw(st.sampled_from(['o0', 'o1']))}", st.sampled_from(["g0", "g1", "missing"])
    return mk_telemetry_policy(path, draw(st.lists(gateways, min_size=1, max_size=2)), collector, draw(TIMES), **tracing)


_GOOD = st.none() | policies()


@st.composite
def rejected_policies(draw: st.DrawFn) -> Object:
    kind = draw(_SERVICE_KINDS)
    target = PolicyTargetReference(kind["group"], kind["kind"], draw(SERVICES), draw(SECTIONS))
    good = draw(_GOOD)
    assert good is None or isinstance(good, BackendTLSPolicy)
    name, namespace = (good.metadata.name, good.metadata.namespace) if good else ("p3", draw(NAMESPACES))
    metadata = ObjectMeta(name, namespace, creation_timestamp=draw(TIMES))
    return RejectedPolicy(metadata, (target,), "spec.mode is unknown", good)


@st.composite
def secrets(draw: st.DrawFn) -> Object:
    name = draw(st.sampled_from(["k0", "k1"]))
    certificate, private = key_pair(name)
    if draw(st.booleans()):
        private = key_pair("somebody else")[1]
    return mk_secret(f"{draw(NAMESPACES)}/{name}", certificate, private, ca_content(draw(CAS)) or "", draw(CRLS))


ALLOWANCES = st.sampled_from(["", "Allow", "Deny"])
PLAINTEXT = st.sampled_from(["", "Allow", "Deny", "Declared"])


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
    tls: dict[str, Any] = {"waivers": draw(ALLOWANCES), "plaintextBackends": draw(PLAINTEXT)}
    tls |= {"pinnedOnly": draw(ALLOWANCES), "weakCertificates": draw(ALLOWANCES)}
    tls["clientCertificate"] = draw(st.sampled_from(["", "PolicyFirst", "GatewayFirst"]))
    tls |= draw(st.sampled_from([{}, {"maxWaiverDays": 20}, {"minTLSVersion": "1.3"}, {"minTLSVersion": "1.0"}]))
    connecting: list[dict[str, int]] = [
        {},
        {"connectRetries": 0, "ejectionSeconds": 0},
        {"connectRetries": 10, "ejectionSeconds": 3600},
    ]
    return mk_profile(
        f"{draw(NAMESPACES)}/f0",
        backendTLS=tls,
        externalNameServices=draw(ALLOWANCES),
        externalHostnames=draw(ALLOWANCES),
        proxy=draw(st.sampled_from(connecting)),
    )


@st.composite
def classes(draw: st.DrawFn) -> Object:
    spec: dict[str, Any] = {"controllerName": draw(st.sampled_from([CONTROLLER_NAME, CONTROLLER_NAME, "foreign.example/x"]))}
    ref = draw(st.sampled_from([None, profile_ref("f0", "a"), profile_ref("f1", "a"), profile_ref("f0")]))
    return mk("GatewayClass", CLASS, spec={**spec, **({"parametersRef": ref} if ref else {})})


def grants() -> st.SearchStrategy[Object]:
    return st.builds(
        lambda a, b, k: mk_grant(f"{a}/grant", b, *k),
        NAMESPACES,
        NAMESPACES,
        st.sampled_from(
            [
                *[(kind, "Service") for kind in ("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute")],
                *[("Gateway", "Secret"), ("ListenerSet", "Secret"), ("Gateway", "ConfigMap")],
                *[("HTTPRoute", "XBackend"), ("TCPRoute", "XBackend"), ("XBackend", "Secret")],
                *[("HTTPRoute", "ServiceImport"), ("TLSRoute", "ServiceImport"), ("Gateway", "ServiceImport")],
                *[("Gateway", "Service"), ("ListenerSet", "Service"), ("ListenerSet", "ServiceImport")],
                *[("XTelemetryPolicy", kind) for kind in ("Service", "XBackend", "ServiceImport")],
            ]
        ),
    )


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
    traffic_policies(),
    telemetry_policies(),
    rejected_policies(),
    secrets(),
    st.builds(
        lambda ns, s, p: mk_service(f"{ns}/{s}", p),
        NAMESPACES,
        SERVICES,
        _PORTS,
    ),
    st.builds(
        lambda ns, s, p: mk_service_import(f"{ns}/{s}", p),
        NAMESPACES,
        SERVICES,
        _PORTS,
    ),
    st.builds(
        lambda ns, s, a, i: mk_slice(f"{ns}/{s}-{1 + i}", s, a, imported=i),
        NAMESPACES,
        SERVICES,
        st.sampled_from([[], ["10.1.0.1"]]),
        st.booleans(),
    ),
    st.builds(lambda ns, app: mk("EndpointSlice", f"{ns}/x", labels={"app": app}), NAMESPACES, st.sampled_from(["x", "y"])),
    st.builds(
        lambda ns, n, c, crl: mk_config_map(f"{ns}/{n}", ca_content(c), crl),
        NAMESPACES,
        st.sampled_from(["c0", "c1", CLIENTS]),
        CAS,
        CRLS,
    ),
    grants(),
    st.builds(lambda ns, x: mk("Namespace", ns, labels={"x": x}), NAMESPACES, st.sampled_from(["1", "2"])),
    st.builds(lambda c: mk("ClusterTrustBundle", "t0", spec={"trustBundle": ca_content(c) or ""}), CAS),
    classes(),
    pin_sets(),
    waivers(),
    profiles(),
)


DELETE = st.sampled_from([False, False, False, True])
EDIT = st.tuples(OBJECTS, DELETE, st.booleans())
"""(object, whether it is deleted, whether anybody looks before the next edit)."""
EDITS = st.lists(EDIT, min_size=1, max_size=20)
Edit = tuple[Object, bool, bool]

_X0 = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x0"}
_BY_C0 = {"hostname": "api.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "c0"}]}
_ASKED = [mk_external_auth("HTTP", {"name": "s0", "port": 443})]
FRONTEND = {"default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": CLIENTS}]}}}
BASE = keyed(
    mk_class(),
    mk_gateway("a/g0"),
    mk_gateway(
        "b/g1",
        [*HTTP_AND_HTTPS, *STREAMS],
        tls={"backend": {"clientCertificateRef": {"name": "k0"}}, "frontend": FRONTEND},
        allowedListeners={"namespaces": {"from": "All"}},
        infrastructure={"parametersRef": profile_ref("f0")},
    ),
    mk_profile("b/f0", backendTLS={"waivers": "Allow"}),
    *(mk_pin_set(f"{ns}/n0", PINS[0]) for ns in "ab"),
    *(mk_waiver(f"{ns}/w0", waives) for ns, waives in (("a", "All"), ("b", "Names"))),
    mk_listener_set("a/l0", "b/g1", [{"name": "one", "port": 8080, "protocol": "HTTP", "filters": {"requests": _ASKED}}]),
    mk_config_map(f"b/{CLIENTS}", ca_pem("clients")),
    mk_secret("b/k0", *key_pair("k0")),
    *(mk_service(f"{ns}/{name}", PORTS) for ns in "ab" for name in ("s0", "s1")),
    *(mk_slice(f"{ns}/{name}-1", name, ["10.0.0.1"]) for ns in "ab" for name in ("s0", "s1")),
    *(mk_config_map(f"{ns}/{name}", ca_pem("good")) for ns in "ab" for name in ("c0", "c1")),
    mk_route("a/r0", "a/g0", [{"name": "s0", "port": 443}, {"name": "s1", "port": 80}, {"name": "s1", "port": 443}]),
    mk_route(
        "b/r0",
        "b/g1",
        [{"name": "s0", "namespace": "a", "port": 443}, {"name": "s1", "port": 443}, {"name": "s0", "port": 443}],
    ),
    mk_route(
        "a/asks",
        "a/g0",
        [],
        ["asks.example"],
        rules=[
            {
                "filters": [mk_external_auth("GRPC", {"name": "s0", "port": 443})],
                "backendRefs": [{"name": "s1", "port": 443}],
            }
        ],
    ),
    mk_service_import("a/s0", PORTS),
    mk_slice("a/s0-2", "s0", ["10.2.0.1"], imported=True),
    mk_grant("a/i-grant", "b", "HTTPRoute", "ServiceImport"),
    mk_policy(
        "a/p3", "s0", "far.example", ["c1"], targets=[{"group": MULTICLUSTER_API, "kind": "ServiceImport", "name": "s0"}]
    ),
    mk_route("a/far", "a/g0", [import_ref("s0")], ["far.example"]),
    mk_route(
        "b/far",
        "b/g1",
        [],
        ["far.example"],
        rules=[
            {
                "filters": [mk_external_auth("HTTP", import_ref("s0", namespace="a"))],
                "backendRefs": [import_ref("s0", namespace="a"), {"name": "s1", "port": 443}],
            }
        ],
    ),
    mk_stream_route("TCPRoute", "a/far", "b/g1", [import_ref("s0")], section="ends"),
    mk_route("b/calls", "b/g1", [{"name": "s1", "port": 443}], kind="GRPCRoute"),
    mk_stream_route("TLSRoute", "b/r0", "b/g1", [{"name": "s1", "port": 443}], ["a.p.example", "x.example"]),
    mk_stream_route("TCPRoute", "b/r0", "b/g1", [{"name": "s1", "port": 443}, {"name": "s0", "port": 80}], section="tcp"),
    mk_stream_route("UDPRoute", "b/r0", "b/g1", [{"name": "s1", "port": 53}, {"name": "s0", "port": 53}]),
    mk_route("a/r1", "", [{"name": "s0", "port": 443}], parents=[{"kind": "ListenerSet", "name": "l0"}]),
    mk_route("a/r2", "a/g0", [_X0], ["q.example"]),
    mk_stream_route("TCPRoute", "b/r2", "b/g1", [{**_X0, "namespace": "a"}], section="ends"),
    mk_grant("a/x-grant", "b", "TCPRoute", "XBackend"),
    mk_xbackend("a/x0", "api.example", "ClientAndServer", _BY_C0, tls={"clientCertificateRef": {"name": "k0"}}),
    mk_secret("a/k0", *key_pair("k0")),
    mk_grant("a/grant", "b"),
    mk_traffic_policy("a/t0", {"group": "", "kind": "Service", "name": "s0"}, retryConstraint={}),
    mk_telemetry_policy("b/o0", ["g1"], {"name": "s0", "namespace": "a", "port": 443}),
    mk_grant("a/traces", "b", "XTelemetryPolicy"),
    mk_policy("a/p0", "s0", "api.example", ["c0"]),
    mk_policy("b/p0", "s1", "api.example", ["c1"], section="https"),
    mk_policy("a/p1", "s1", "api.example", [own_ref("PinSet", "n0")], section="https"),
    mk_policy("b/p1", "s0", "api.example", ["c0", own_ref("VerificationWaiver", "w0")], section="https"),
)
"""A world in which everything works, so that every edit has something to break."""
BESIDE_ROUTES = {name: obj for name, obj in BASE.items() if not name.kind.endswith("Route")}
"""The same without routes: what is left are the ways to a collector and to a server that a listener asks."""
