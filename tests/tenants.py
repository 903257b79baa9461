"""A world of several tenants under one shared Gateway, and each tenant's part of the configuration."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from envoy.config.listener.v3 import listener_pb2
from envoy.config.route.v3 import route_pb2

from lasthop.base.api.kinds import MULTICLUSTER_API
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import GatewayStatus, ListenerSetStatus, Status
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import LISTENER, ROUTES
from lasthop.engine.plan.reasons import BACKENDS_WEAKENED, INSECURE_BACKEND_VERIFICATION
from tests.snapshot import Snapshot
from tests.world import (
    EXPERIMENTAL_GROUP,
    PINS,
    PORTS,
    ca_pem,
    import_ref,
    key_pair,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_external_auth,
    mk_gateway,
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
    mk_traffic_policy,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

VICTIMS = ("bank", "shop")
TENANT = "evil"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"
SHARED = "edge/web"
UNUSED = ("8444/pass/*.p.example",)
"""The unused name of a shared listener, which any tenant may take."""
_ALL = {"namespaces": {"from": "All"}}
IMPORTS = {"group": MULTICLUSTER_API, "kind": "ServiceImport"}


def tenant(ns: str, created: str) -> list[Object]:
    """All that a tenant usually has. Its hostnames end in `<tenant>.example`."""
    https = {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": f"set.{ns}.example"}
    secure = {**https, "tls": {"certificateRefs": [{"name": "pair"}]}, "allowedRoutes": _ALL}
    asks = {"requests": [mk_external_auth("GRPC", {"name": "s0", "port": 443}), mk_external_auth("HTTP", import_ref("far"))]}
    plain = {"name": "http", "port": 80, "protocol": "HTTP", "hostname": f"plain.{ns}.example", "filters": asks}
    ends = {"name": "ends", "port": 443, "protocol": "TLS", "hostname": f"tls.{ns}.example", "tls": secure["tls"]}
    x = {"group": EXPERIMENTAL_GROUP, "kind": "XBackend", "name": "x"}
    by_ca = {"hostname": "api.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}
    match = {
        "path": {"type": "RegularExpression", "value": "/a+"},
        "headers": [{"name": "x-a", "type": "Exact", "value": "1"}],
        "queryParams": [{"name": "q", "type": "Exact", "value": "1"}],
    }
    filters = [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-b", "value": "2"}], "remove": ["c"]}},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "x-b", "value": "2"}]}},
        {
            "type": "URLRewrite",
            "urlRewrite": {"hostname": "r.example", "path": {"type": "ReplaceFullPath", "replaceFullPath": "/r"}},
        },
        {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "s1", "port": 80}, "percent": 5}},
        {"type": "CORS", "cors": {"allowOrigins": ["https://a.example"], "allowMethods": ["GET"], "maxAge": 5}},
    ]
    auth = mk_external_auth("HTTP", {"name": "s0", "port": 443}, path="/ask", forwardBody={"maxSize": 10})
    rule = {
        "matches": [match],
        "filters": filters,
        "backendRefs": [{"name": "s0", "port": 443, "weight": 3}, {"name": "s1", "port": 80}, x],
        "timeouts": {"request": "10s", "backendRequest": "5s"},
        "retry": {"attempts": 2, "backoff": "100ms", "codes": [503]},
    }
    session = {"sessionName": "s", "type": "Cookie", "absoluteTimeout": "1h", "cookieConfig": {"lifetimeType": "Permanent"}}
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "to.example", "port": 8443, "statusCode": 301}}
    call = {"method": {"type": "RegularExpression", "service": "a.B", "method": "C+"}}
    return [
        mk("Namespace", ns, labels={"team": ns}),
        mk_secret(f"{ns}/pair", *key_pair("k0")),
        mk_config_map(f"{ns}/ca", ca_pem("good")),
        *(mk_service(f"{ns}/{name}", PORTS) for name in ("s0", "s1")),
        *(mk_slice(f"{ns}/{name}-1", name, ["10.0.0.1"]) for name in ("s0", "s1")),
        mk_service_import(f"{ns}/far", PORTS),
        mk_slice(f"{ns}/far-1", "far", ["10.0.0.2"], imported=True),
        mk_pin_set(f"{ns}/pins", PINS[0], certificates=[ca_pem("leaf")]),
        mk_waiver(f"{ns}/waiver", "Names", "2026-12-01T00:00:00Z", OLD),
        mk_policy(
            f"{ns}/p0",
            "s0",
            "api.example",
            ["ca"],
            section="https",
            created=created,
            spec={"options": {"lasthop.dev/min-tls-version": "1.2"}},
        ),
        mk_policy(
            f"{ns}/p1", "s1", "api.example", ["ca", own_ref("VerificationWaiver", "waiver")], section="https", created=created
        ),
        mk_policy(f"{ns}/p2", "", "far.example", ["ca"], targets=[{**IMPORTS, "name": "far"}], created=created),
        mk_xbackend(f"{ns}/x", "api.example", "ServerOnly", by_ca),
        mk_traffic_policy(
            f"{ns}/traffic",
            {"group": "", "kind": "Service", "name": "s0"},
            created=created,
            retryConstraint={"budget": {"percent": 5, "interval": "1m"}, "minRetryRate": {"count": 2, "interval": "1s"}},
            sessionPersistence={"type": "Cookie", "cookie": {"name": "stick"}},
        ),
        mk_route(
            f"{ns}/web",
            SHARED,
            [],
            [f"{ns}.example", f"www.{ns}.example"],
            rules=[
                rule,
                {"filters": [redirect]},
                {"filters": [auth], "backendRefs": [{"name": "s1", "port": 443}], "sessionPersistence": session},
            ],
            created=created,
        ),
        mk_route(
            f"{ns}/calls",
            SHARED,
            [],
            [f"grpc.{ns}.example"],
            rules=[{"matches": [call], "backendRefs": [{"name": "s0", "port": 443}, import_ref("far")]}],
            kind="GRPCRoute",
            created=created,
        ),
        mk_listener_set(f"{ns}/set", SHARED, [secure, plain, ends], created=created),
        mk_route(
            f"{ns}/in-set",
            "",
            [{"name": "s1", "port": 443}],
            parents=[{"kind": "ListenerSet", "name": "set"}],
            created=created,
        ),
        mk_stream_route(
            "TLSRoute", f"{ns}/pass", SHARED, [{"name": "s1", "port": 443}], [f"a.{ns}.p.example"], created=created
        ),
        mk(
            "TCPRoute",
            f"{ns}/tcp",
            created,
            spec={
                "parentRefs": [{"kind": "ListenerSet", "name": "set", "sectionName": "ends"}],
                "rules": [{"backendRefs": [{"name": "s0", "port": 443}, {"name": "s1", "port": 443}]}],
            },
        ),
        mk_profile(f"{ns}/profile", backendTLS={"waivers": "Allow", "maxWaiverDays": 400}),
        _gateway(
            f"{ns}/own",
            created,
            [
                {"name": "http", "port": 8000, "protocol": "HTTP"},
                {"name": "https", "port": 8443, "protocol": "HTTPS", "tls": secure["tls"]},
            ],
            infrastructure={"parametersRef": profile_ref("profile"), "labels": {"a": "b"}},
            addresses=[{"value": f"10.1.0.{len(ns) + ord(ns[0])}"}],
        ),
        mk_route(f"{ns}/at-home", f"{ns}/own", [{"name": "s0", "port": 443}], [f"home.{ns}.example"], created=created),
    ]


def world() -> dict[Key, Object | None]:
    listeners = [
        {"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": _ALL},
        {
            "name": "pass",
            "port": 8444,
            "protocol": "TLS",
            "hostname": "*.p.example",
            "tls": {"mode": "Passthrough"},
            "allowedRoutes": _ALL,
        },
    ]
    shared = _gateway(
        SHARED,
        OLD,
        listeners,
        allowedListeners={"namespaces": {"from": "All"}},
        infrastructure={"parametersRef": profile_ref("profile")},
    )
    operator = mk_profile("edge/profile", backendTLS={"waivers": "Allow"})
    tenants = [obj for ns in (*VICTIMS, TENANT) for obj in tenant(ns, NEW if ns == TENANT else OLD)]
    return keyed(mk_class(), shared, operator, *tenants)


def _gateway(path: str, created: str, listeners: list[dict[str, Any]], **spec: Any) -> Object:
    gateway = mk_gateway(path, listeners, **spec)
    return msgspec.structs.replace(gateway, metadata=msgspec.structs.replace(gateway.metadata, creation_timestamp=created))


Piece = tuple[Any, ...]


def pieces(snapshot: Snapshot) -> dict[Piece, bytes]:
    """Envoy's configuration in parts that can belong to one owner: virtual hosts and filter chains instead of tables and
    ports."""
    parts: dict[Piece, bytes] = {}
    for (gateway, type_url, name), resource in snapshot.xds.items():
        where = (gateway.path, type_url.rpartition(".")[2], name)
        if type_url == ROUTES:
            table = route_pb2.RouteConfiguration.FromString(resource.body)
            for host in table.virtual_hosts:
                if host.name == "!misdirected":  # of all other listeners of the port, so of every tenant
                    own = [domain for domain in host.domains if TENANT not in domain]
                    parts |= {(*where, host.name, domain): b"" for domain in own}
                else:
                    parts[*where, host.name] = host.SerializeToString(deterministic=True)
            del table.virtual_hosts[:]
            parts[where] = table.SerializeToString(deterministic=True)
        elif type_url == LISTENER:
            listener = listener_pb2.Listener.FromString(resource.body)
            for chain in listener.filter_chains:
                parts[*where, chain.name] = chain.SerializeToString(deterministic=True)
            del listener.filter_chains[:]
            parts[where] = listener.SerializeToString(deterministic=True)
        else:
            parts[where] = resource.body
    return parts


_THEIRS = re.compile(rf"\b{TENANT}\b")


def of_others(engine: Engine, snapshot: Snapshot) -> dict[Piece, Any]:
    """All that the tenant must not be able to change: everything in which its name does not occur."""
    parts: dict[Piece, Any] = {
        piece: body
        for piece, body in pieces(snapshot).items()
        if not any(_THEIRS.search(part) or part in UNUSED for part in piece)
    }
    parts |= {("status", str(key)): _own(status) for key, status in snapshot.status.items() if key.namespace != TENANT}
    findings = [finding for finding in engine.findings() if finding.object is None or finding.object.namespace != TENANT]
    parts["findings",] = tuple(findings)
    parts["hops",] = tuple(
        hop for hop in engine.hops() if hop.backend.namespace != TENANT and hop.gateway.path != f"{TENANT}/own"
    )
    certificates = engine.certificates()
    parts["certificates",] = tuple(
        msgspec.structs.replace(certificate, users=users)
        for certificate in certificates
        if (users := tuple(user for user in certificate.users if user.namespace != TENANT))
    )
    return parts


def _own(status: Status) -> Status:
    """Without what counts other people's objects by its definition: attached routes, ListenerSets, waivers in effect, backends
    that are verified less than before."""
    if not isinstance(status, GatewayStatus | ListenerSetStatus):
        return status
    replace = msgspec.structs.replace
    listeners = tuple(replace(listener, attached_routes=0) for listener in status.listeners)
    conditions = tuple(
        replace(condition, message="") if condition.type == INSECURE_BACKEND_VERIFICATION else condition
        for condition in status.conditions
        if condition.type != BACKENDS_WEAKENED
    )
    status = replace(status, listeners=listeners, conditions=conditions)
    return replace(status, attached_listener_sets=0) if isinstance(status, GatewayStatus) else status
