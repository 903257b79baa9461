"""External names in a cluster, where the author of an XBackend need not be the operator."""

from __future__ import annotations

from typing import Any

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan.tls import Refused, SystemStore
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.backends.xbackends import is_address, spec_problem
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.settings import IN_CLUSTER, SYSTEM_STORE, Settings
from tests.world import (
    keyed,
    mk,
    mk_class,
    mk_gateway,
    mk_pod,
    mk_profile,
    mk_slice,
    mk_waiver,
    mk_xbackend,
    own_ref,
    profile_ref,
)

KEY = Key("XBackend", "a", "x")
NOT_PERMITTED = "ExternalHostnameNotPermitted"
SYSTEM = {"hostname": "api.example", "wellKnownCACertificates": "System"}


def refused(
    mode: str = "None",
    hostname: str = "api.example",
    said: str = "",
    settings: Settings = IN_CLUSTER,
    validation: dict[str, Any] = SYSTEM,
) -> str:
    """The reason why a Gateway may not reach it; empty if it may."""
    engine = Engine(settings)
    SYSTEM_STORE.set(engine.graph, SystemStore("/ca.pem", "digest"))
    profile: dict[str, Any] = {"backendTLS": {"waivers": "Allow"}, **({"externalHostnames": said} if said else {})}
    engine.apply(keyed(*(mk_waiver(f"a/{waives.lower()}", waives) for waives in ("All", "Names", "Expiry"))))
    engine.apply(keyed(mk_class(), mk_gateway("a/g", infrastructure={"parametersRef": profile_ref("f")})))
    engine.apply(keyed(mk_profile("a/f", **profile)))
    engine.apply(keyed(mk_xbackend("a/x", hostname, mode, validation if mode != "None" else None)))
    hop = Hop(Key("Gateway", "a", "g"), KEY, 443, Protocol.AUTO)
    tls = hop_tls(engine.graph, *hop)
    return tls.problem.reason if isinstance(tls, Refused) else ""


def test_in_a_cluster_an_external_name_needs_tls_unless_the_operator_permits_plaintext() -> None:
    assert refused() == "ExternalHostnameNotPermitted"
    assert refused("ServerOnly") == ""
    assert refused(said="Allow") == ""
    assert refused("ServerOnly", said="Deny") == "ExternalHostnameNotPermitted"


@pytest.mark.parametrize("waives, reason", [("all", NOT_PERMITTED), ("names", NOT_PERMITTED), ("expiry", "")])
def test_a_waiver_that_leaves_open_who_answers_is_not_tls_that_verifies(waives: str, reason: str) -> None:
    refs = [own_ref("VerificationWaiver", waives)]
    refs += [own_ref("WellKnownCACertificates", "System")] if waives != "all" else []
    validation = {"hostname": "api.example", "caCertificateRefs": refs}
    assert refused("ServerOnly", validation=validation) == reason
    assert refused("ServerOnly", said="Allow", validation=validation) == ""


def test_in_a_folder_it_needs_none_and_the_operator_may_forbid_it() -> None:
    assert refused(settings=Settings()) == ""
    assert refused(said="Deny", settings=Settings()) == "ExternalHostnameNotPermitted"


@pytest.mark.parametrize("name", ["localhost", "a.localhost", "x.y.svc.cluster.local", "127.0.0.1"])
def test_an_invalid_external_name_is_refused_under_any_profile(name: str) -> None:
    assert refused("ServerOnly", name, "Allow") == "Invalid"


def test_a_selector_is_served_wherever_it_is_and_needs_a_label() -> None:
    assert refused(hostname="") == refused(hostname="", settings=Settings()) == ""
    engine = Engine(IN_CLUSTER)
    spec = {"type": "EndpointSelector", "port": {"number": 443}, "endpointSelector": {"matchLabels": {}}}
    engine.apply(keyed(mk("XBackend", "a/x", spec=spec), mk_pod("a/p", "10.0.0.1", {})))
    assert endpoints(engine.graph, KEY, 443, "TCP").endpoints == ()
    problem = spec_problem(engine.graph, KEY)
    assert problem and problem.reason == "UnsupportedValue"


def test_in_a_cluster_the_selector_is_for_pods_of_its_namespace_that_are_ready() -> None:
    engine = Engine(IN_CLUSTER)
    app = {"app": "x"}
    pods = [
        mk_pod("a/one", "10.0.0.1", {**app, "tier": "front"}),
        mk_pod("a/two", "fd00::2", app),
        mk_pod("a/unready", "10.0.0.3", app, ready=False),
        mk_pod("a/ended", "10.0.0.4", app, phase="Succeeded"),
        mk_pod("a/leaving", "10.0.0.5", app, leaving=True),
        mk_pod("a/other", "10.0.0.6", {"app": "y"}),
        mk_pod("b/far", "10.0.0.7", app),
        mk_pod("a/odd", "not-an-address", app),
        mk_slice("a/slice", "x", ["10.0.0.8"]),
    ]
    engine.apply(keyed(mk_xbackend("a/x"), *pods))
    engine.settle()
    addresses = endpoints(engine.graph, KEY, 443, "TCP").endpoints
    assert [(address.address, address.port) for address in addresses] == [("10.0.0.1", 443), ("fd00::2", 443)]


def test_a_name_is_looked_up_as_it_stands_where_pods_have_a_search_list() -> None:
    for settings, name in ((IN_CLUSTER, "api.example."), (Settings(), "api.example")):
        engine = Engine(settings)
        engine.apply(keyed(mk_xbackend("a/x", "api.example")))
        assert endpoints(engine.graph, KEY, 443, "TCP").endpoints[0].address == name


@pytest.mark.parametrize("name", ["10.0.0.1", "::1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "10.0.0.0x1"])
def test_addresses_in_every_spelling(name: str) -> None:
    assert is_address(name)


@pytest.mark.parametrize("name", ["api.example", "1.example", "10.0.0.1.example", "x0.example", "0xample"])
def test_names_are_no_addresses(name: str) -> None:
    assert not is_address(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (IN_CLUSTER, "XBackend a/x does not exist, or has a field that this version does not know"),
        (None, "XBackend a/x does not exist"),
    ],
)
def test_in_a_cluster_one_that_is_not_there_may_be_one_that_cannot_be_decoded(settings: Settings | None, message: str) -> None:
    engine = Engine(settings)
    engine.apply(keyed(mk_class(), mk_gateway("a/g")))
    tls = hop_tls(engine.graph, Key("Gateway", "a", "g"), KEY, 443, Protocol.AUTO)
    assert isinstance(tls, Refused) and tls.problem.message == message
