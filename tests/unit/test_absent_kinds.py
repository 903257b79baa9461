"""An absent kind closes backends and opens none; only without the kind of policies the documented rule holds."""

from __future__ import annotations

from typing import Any, Final

import pytest

from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.resolve.settings import IN_CLUSTER, set_absent
from tests.world import (
    NOW,
    ca_pem,
    keyed,
    mk,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_grant,
    mk_pin_set,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    mk_slice,
    mk_waiver,
    own_ref,
    profile_ref,
)

PIN: Final = "a" * 64
CLOSED: Final = "failing closed"
ALL: Final = {
    "plain": "plaintext",
    "api": "verified",
    "pinned": "pinned only",
    "waived": "waived",
    "denied": CLOSED,
    "far": "plaintext",
}


def world() -> dict[Key, Any]:
    """Five backends at a Gateway that permits what its class permits, one at a Gateway whose profile denies plaintext."""
    strict: dict[str, Any] = {"infrastructure": {"parametersRef": profile_ref("strict")}}
    lax: dict[str, Any] = {"infrastructure": {"parametersRef": profile_ref("lax")}}
    names = ("plain", "api", "pinned", "waived", "denied")
    return keyed(
        mk("Namespace", "shop"),
        mk("Namespace", "far"),
        mk_class(),
        mk_gateway("shop/web", **lax),
        mk_gateway("shop/strict", **strict),
        mk_profile("shop/lax", backendTLS={"waivers": "Allow"}),
        mk_profile("shop/strict", backendTLS={"plaintextBackends": "Deny"}),
        *(mk_service(f"shop/{name}") for name in names),
        *(mk_slice(f"shop/{name}-1", name, ["10.0.0.1"]) for name in names),
        *(mk_route(f"shop/{name}", "shop/web", [{"name": name, "port": 443}], [f"{name}.example"]) for name in names[:-1]),
        mk_route("shop/denied", "shop/strict", [{"name": "denied", "port": 443}], ["denied.example"]),
        mk_service("far/far"),
        mk_slice("far/far-1", "far", ["10.0.0.1"]),
        mk_route("shop/far", "shop/web", [{"name": "far", "namespace": "far", "port": 443}], ["far.example"]),
        mk_grant("far/grant", "shop"),
        mk_config_map("shop/ca", ca_pem("ca")),
        mk_policy("shop/api", "api", "api.example", ["ca"]),
        mk_policy("shop/pinned", "pinned", "pinned.example", [own_ref("PinSet", "pins")]),
        mk_pin_set("shop/pins", PIN),
        mk_policy("shop/waived", "waived", "waived.example", [own_ref("VerificationWaiver", "waiver")]),
        mk_waiver("shop/waiver"),
    )


def modes(engine: Engine) -> dict[str, str]:
    engine.settle()
    return {hop.backend.name: str(hop.manner) for hop in engine.hops()}


EFFECTS: Final[dict[str, dict[str, str]]] = {
    "ReferenceGrant": {"far": CLOSED},
    "ConfigMap": {"api": CLOSED},
    "PinSet": {"pinned": CLOSED},
    "VerificationWaiver": {"waived": CLOSED},
    "GatewayProfile": {name: CLOSED for name in ("plain", "api", "pinned", "waived", "far")},
    "Service": dict.fromkeys(ALL, "none"),
    "HTTPRoute": dict.fromkeys(ALL, "none"),
    "Gateway": dict.fromkeys(ALL, "none"),
    "GatewayClass": dict.fromkeys(ALL, "none"),
    "BackendTLSPolicy": {name: "plaintext" for name in ("api", "pinned", "waived")},
}
"""By absent kind: how backends are connected then, where it differs. Kinds that are not listed change nothing."""


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_absent_kind_opens_nothing(kind: str) -> None:
    engine, objects = Engine(IN_CLUSTER, now=NOW.timestamp()), world()
    engine.apply(objects)
    assert modes(engine) == ALL
    set_absent(engine.graph, {kind})
    engine.apply({key: None for key in objects if key.kind == kind})
    assert {**dict.fromkeys(ALL, "none"), **modes(engine)} == ALL | EFFECTS.get(kind, {})
