"""The permitted content of a proxy's report: hops, endpoints and routes of its own Gateway."""

from __future__ import annotations

import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.settings import IN_CLUSTER
from tests.world import NOW, keyed, mk_class, mk_gateway, mk_route, mk_service, mk_slice


@pytest.fixture
def two_gateways() -> Engine:
    engine = Engine(IN_CLUSTER, NOW.timestamp())
    external = mk_service("a/external", type="ExternalName", externalName="x.example")
    backends = [{"name": name, "port": 443} for name in ("s", "external")]
    slice = mk_slice("a/s-1", "s", ["10.0.0.1", "FD00:0::1"], port=8443)
    objects = (
        *(mk_class(), mk_gateway("a/web"), mk_gateway("b/web"), mk_service("a/s"), slice, external),
        *(
            mk_route("a/r", "a/web", backends),
            mk_route("b/r", "b/web", [{"name": "none", "port": 443}]),
            mk_route("c/r", "a/web", [], parents=[{"name": "web", "namespace": "a", "sectionName": "none"}]),
        ),
    )
    engine.apply(keyed(*objects))
    engine.settle()
    return engine


def test_a_proxy_may_report_only_parts_of_its_gateway(two_gateways: Engine) -> None:
    web, other = Key("Gateway", "a", "web"), Key("Gateway", "b", "web")
    hop = Hop(web, Key("Service", "a", "s"), 443, Protocol.AUTO)
    upgrades = hop._replace(protocol=Protocol.H1_UPGRADE)
    for known in (hop, upgrades):
        addresses = two_gateways.addresses(known)
        assert addresses is not None and "10.0.0.1:8443" in addresses and "[fd00::1]:8443" in addresses
        assert "10.0.0.2:8443" not in addresses
    named = two_gateways.addresses(hop._replace(backend=Key("Service", "a", "external")))
    assert named is not None and "192.0.2.1:443" in named, "the addresses of a name are known to those who resolve it"
    made_up = (
        hop._replace(gateway=other),
        hop._replace(port=444),
        hop._replace(protocol=Protocol.H2),
        hop._replace(backend=Key("Service", "a", "t")),
        hop._replace(backend=Key("Nonsense", "a", "s")),
    )
    assert [two_gateways.addresses(gateway) for gateway in made_up] == [None] * 5
    assert two_gateways.serves(web, Key("HTTPRoute", "a", "r")) and two_gateways.serves(other, Key("HTTPRoute", "b", "r"))
    assert not two_gateways.serves(other, Key("HTTPRoute", "a", "r"))
    assert not two_gateways.serves(web, Key("Gateway", "a", "web"))
    assert not two_gateways.serves(web, Key("HTTPRoute", "c", "r")), "no listener lets it attach"


def test_queries_for_missing_objects_leave_nothing_in_the_graph(two_gateways: Engine) -> None:
    web, nodes = Key("Gateway", "a", "web"), len(two_gateways.graph.nodes)
    for number in range(100):
        assert not two_gateways.serves(web, Key("HTTPRoute", "a", f"made-up-{number}"))
        assert two_gateways.addresses(Hop(web, Key("Service", "a", f"made-up-{number}"), 443, Protocol.AUTO)) is None
    assert len(two_gateways.graph.nodes) == nodes
