"""A small cluster in which edits are rehearsed: one backend, verified."""

from __future__ import annotations

from typing import Any

from lasthop.base.api.meta import Object
from tests.world import (
    ca_pem,
    mk,
    mk_class,
    mk_config_map,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    mk_slice,
    profile_ref,
)

POLICY = mk_policy("shop/api", "api", "api.example", ["ca"], created="2026-01-01T00:00:00Z")
REFUSING = {"admission": {"refuse": ["WeakerVerification", "NotPermitted", "WaiverWithoutEnd"]}}


def world(**profile: object) -> tuple[Object, ...]:
    named: dict[str, Any] = {"infrastructure": {"parametersRef": profile_ref("rules")}} if profile else {}
    return (
        mk("Namespace", "shop"),
        mk_class(),
        mk_gateway("shop/web", **named),
        mk_route("shop/api", "shop/web", [{"name": "api", "port": 443}]),
        mk_service("shop/api"),
        mk_slice("shop/api-1", "api", ["10.0.0.1"]),
        mk_config_map("shop/ca", ca_pem("ca")),
        POLICY,
        *([mk_profile("shop/rules", **profile)] if profile else []),
    )
