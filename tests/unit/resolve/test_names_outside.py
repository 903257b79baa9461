"""In a cluster a Service must not lead a Gateway outside by a name: ExternalName, or EndpointSlices of addressType FQDN."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.plan import reasons
from lasthop.engine.plan.tls import Refused
from lasthop.engine.plan.upstream import Protocol
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.settings import IN_CLUSTER, Settings
from tests.snapshot import Snapshot, settled
from tests.world import (
    keyed,
    mk,
    mk_class,
    mk_gateway,
    mk_policy,
    mk_profile,
    mk_route,
    mk_service,
    mk_slice,
    mk_waiver,
    own_ref,
    profile_ref,
)

GATEWAY = Key("Gateway", "a", "g")
SERVICE = Key("Service", "a", "s")
ON_A_HOST = Settings(external_names=False, pods=True)
"""The controller with child processes: its proxies reach loopback."""


def fqdn(*names: str) -> Object:
    return mk(
        "EndpointSlice",
        "a/fqdn",
        labels={"kubernetes.io/service-name": "s"},
        addressType="FQDN",
        endpoints=[{"addresses": [name]} for name in names],
        ports=[{"name": "https", "port": 9443}],
    )


def running(settings: Settings, *objects: Object, said: str = "") -> tuple[Engine, Snapshot]:
    profile: dict[str, Any] = {"externalNameServices": said} if said else {}
    return settled(
        keyed(
            mk_class(),
            mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")}),
            mk_profile("a/f", backendTLS={"waivers": "Allow"}, **profile),
            mk_service("a/s"),
            mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
            *objects,
        ),
        settings=settings,
    )


@pytest.mark.parametrize("settings", [IN_CLUSTER, ON_A_HOST])
@pytest.mark.parametrize("name", ["a.localhost", "169.254.169.254.nip.io"])
def test_names_in_endpoint_slices_are_refused(settings: Settings, name: str) -> None:
    engine, snapshot = running(settings, fqdn(name))
    tls = hop_tls(engine.graph, GATEWAY, SERVICE, 443, Protocol.AUTO)
    assert isinstance(tls, Refused)
    assert tls.problem.reason == reasons.UNSUPPORTED_VALUE
    assert "addressType FQDN" in tls.problem.message
    assert snapshot.clusters() == {}


def test_an_operator_may_allow_them_and_a_folder_does() -> None:
    for settings, said in ((IN_CLUSTER, "Allow"), (Settings(), "")):
        assert running(settings, fqdn("api.example"), said=said)[1].clusters()
    assert not running(Settings(), fqdn("api.example"), said="Deny")[1].clusters()


def test_beside_addresses_they_are_ignored() -> None:
    engine, snapshot = running(IN_CLUSTER, fqdn("a.localhost"), mk_slice("a/s-1", "s", ["10.0.0.1"]))
    assert snapshot.clusters()
    resolved_endpoints = endpoints(engine.graph, SERVICE, 443, "TCP")
    assert [endpoint.address for endpoint in resolved_endpoints.endpoints] == ["10.0.0.1"]


def test_an_invalid_address_is_not_an_endpoint() -> None:
    engine, _ = running(IN_CLUSTER, mk_slice("a/s-1", "s", ["10.0.0.1", "metadata.internal", "unix:///x", ""]))
    resolved_endpoints = endpoints(engine.graph, SERVICE, 443, "TCP")
    assert [endpoint.address for endpoint in resolved_endpoints.endpoints] == ["10.0.0.1"]


EXTERNAL = mk_service("a/s", type="ExternalName", externalName="api.example")


@pytest.mark.parametrize("away", [EXTERNAL, fqdn("api.example")])
def test_no_waiver_is_in_effect_at_an_unserved_gateway(away: Object) -> None:
    waived = (mk_policy("a/p", "s", "api.example", [own_ref("VerificationWaiver", "w")]), mk_waiver("a/w"))
    for settings, degraded in ((IN_CLUSTER, False), (Settings(), True)):
        _, snapshot = running(settings, away, *waived)
        assert bool(snapshot.clusters()) == degraded
        policy: Any = snapshot.status[Key("BackendTLSPolicy", "a", "p")]
        gateway: Any = snapshot.status[GATEWAY]
        types = {condition.type for entry in policy.ancestors for condition in entry.conditions}
        assert (reasons.VERIFICATION_DEGRADED in types) == degraded
        types = {condition.type for condition in gateway.conditions}
        assert (reasons.INSECURE_BACKEND_VERIFICATION in types) == degraded
