"""Certificates and keys of one tenant, however malformed, change nothing that another tenant's objects serve."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import GatewayStatus
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, SECRET, Resource
from lasthop.engine.outputs.explain.explain import explain
from tests.examples import slow
from tests.odd_certificates import ODD_PEMS, odd_ders, odd_keys, pem, valid
from tests.snapshot import Snapshot, settle
from tests.world import (
    NOW,
    ca_pem,
    key_pair,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_grant,
    mk_listener_set,
    mk_pin_set,
    mk_policy,
    mk_route,
    mk_secret,
    mk_service,
    own_ref,
)

TENANT = "tenant"
PORT = 9443
"""The only port that the tenant's ListenerSet has."""
GRANTS = keyed(
    mk_grant("tenant/secrets", "shop", "Gateway", "Secret"),
    mk_grant("tenant/cas", "shop", "Gateway", "ConfigMap"),
)


def _https(name: str, port: int, secret: str, namespace: str = "") -> dict[str, Any]:
    ref = {"name": secret, **({"namespace": namespace} if namespace else {})}
    every = {"namespaces": {"from": "All"}}
    return {"name": name, "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [ref]}, "allowedRoutes": every}


def _frontend() -> dict[str, Any]:
    ref = {"group": "", "kind": "ConfigMap", "name": "clients", "namespace": TENANT}
    return {"perPort": [{"port": PORT, "tls": {"validation": {"caCertificateRefs": [ref]}}}]}


WORLD = GRANTS | keyed(
    mk_class(),
    mk_gateway(
        "shop/web",
        [_https("https", 443, "cert"), {"name": "http", "port": 80, "protocol": "HTTP"}],
        allowedListeners={"namespaces": {"from": "All"}},
        tls={"frontend": _frontend()},
    ),
    mk_secret("shop/cert", *key_pair("shop")),
    mk_config_map("shop/ca", ca_pem("shop-ca")),
    mk_service("shop/api"),
    mk_policy("shop/api", "api", "api.example", ["ca"]),
    mk_route("shop/api", "shop/web", [{"name": "api", "port": 443}], ["shop.example"]),
    mk_listener_set("tenant/own", "shop/web", [_https("own", PORT, "cert")]),
    mk_gateway("tenant/gateway", [_https("https", 8443, "cert")], tls={"backend": {"clientCertificateRef": {"name": "cert"}}}),
    *(mk_service(f"tenant/{name}") for name in ("by-map", "by-secret", "by-bundle", "by-pins")),
    mk_policy("tenant/by-map", "by-map", "t.example", ["ca"]),
    mk_policy("tenant/by-secret", "by-secret", "t.example", [{"group": "", "kind": "Secret", "name": "cert"}]),
    mk_policy(
        "tenant/by-bundle",
        "by-bundle",
        "t.example",
        [{"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": TENANT}],
    ),
    mk_policy("tenant/by-pins", "by-pins", "t.example", [own_ref("PinSet", "pins")]),
    *(
        mk_route(f"tenant/{name}", "tenant/gateway", [{"name": name, "port": 443}], [f"{name}.example"])
        for name in ("by-map", "by-secret", "by-bundle", "by-pins")
    ),
)


def written(certificate: bytes, key: bytes) -> dict[Key, Object | None]:
    """Everything that the tenant can put a certificate into."""
    text = certificate.decode(errors="replace")
    content = {"tls.crt": certificate, "tls.key": key, "ca.crt": certificate}
    return keyed(
        mk("Secret", "tenant/cert", data={name: base64.b64encode(value).decode() for name, value in content.items()}),
        mk_config_map("tenant/ca", text),
        mk_config_map("tenant/clients", text),
        mk("ClusterTrustBundle", TENANT, spec={"trustBundle": text}),
        mk_pin_set("tenant/pins", certificates=[text]),
    )


def settled(*changes: dict[Key, Object | None]) -> tuple[Engine, Snapshot]:
    engine, snapshot = Engine(now=NOW.timestamp()), Snapshot()
    for change in changes:
        engine.apply(change)
        settle(engine, snapshot)
    return engine, snapshot


def others(snapshot: Snapshot) -> tuple[dict[Any, Resource], dict[Key, Any]]:
    """Configuration and reports of all other tenants."""
    served = {
        key: resource
        for key, resource in snapshot.xds.items()
        if key[0].namespace != TENANT and f"{TENANT}/" not in key[2] and str(PORT) not in key[2]
    }
    statuses = {key: status for key, status in snapshot.status.items() if TENANT not in (key.namespace, key.name)}
    # The spec requires the number of attached ListenerSets there.
    return served, {
        key: msgspec.structs.replace(status, attached_listener_sets=0) if isinstance(status, GatewayStatus) else status
        for key, status in statuses.items()
    }


GOOD = written(valid().pem.encode(), valid().key_pem.encode())
EXPECTED = others(settled(WORLD, GOOD)[1])


def test_the_world_is_rich_enough_to_mean_something() -> None:
    _, snapshot = settled(WORLD, GOOD)
    kinds = [(key[0].namespace, key[1]) for key in snapshot.xds]
    assert kinds.count((TENANT, CLUSTER)) >= 4
    assert {("shop", SECRET), (TENANT, SECRET), ("shop", LISTENER), (TENANT, LISTENER)} <= set(kinds)
    assert any(str(PORT) in name for _, type_url, name in snapshot.xds if type_url == LISTENER)
    served, _ = others(snapshot)
    assert {key[1] for key in served} >= {CLUSTER, SECRET, LISTENER}


@pytest.mark.parametrize("odd", odd_ders())
def test_an_odd_certificate_harms_nobody_else(odd: str) -> None:
    check(pem(odd_ders()[odd]), valid().key_pem.encode(), edited=True)


@slow(60)
@given(ODD_PEMS, odd_keys(), st.booleans())
def test_odd_bytes_harm_no_other_tenant(certificate: bytes, key: bytes, edited: bool) -> None:
    check(certificate, key, edited=edited)


def check(certificate: bytes, key: bytes, *, edited: bool) -> None:
    odd = written(certificate, key)
    engine, snapshot = settled(*((WORLD, GOOD, odd) if edited else (WORLD | odd,)))
    assert engine.graph.crashes == {}
    assert others(snapshot) == EXPECTED
    engine.findings()
    engine.hops()
    engine.certificates()
    for kind in ("Gateway", "Secret", "ConfigMap", "ClusterTrustBundle", "BackendTLSPolicy", "ListenerSet", "PinSet"):
        for obj_key in engine.store.keys(kind):
            explain(engine.graph, obj_key)
