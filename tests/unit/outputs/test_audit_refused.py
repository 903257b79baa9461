"""References that no ReferenceGrant permits, in the audit."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.audit import Audit, document, read
from lasthop.engine.outputs.audit.observed import hops_of
from tests.world import NOW, key, keyed, mk_class, mk_gateway, mk_grant, mk_route, mk_service

ELSEWHERE = {"name": "api", "namespace": "b", "port": 443}
DETAIL = "no ReferenceGrant in namespace b lets HTTPRoutes of namespace a refer to it"


def test_a_hop_that_no_grant_permits_is_a_line_that_fails_until_one_does() -> None:
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_class(), mk_gateway("a/g"), mk_service("b/api"), mk_route("a/r", "a/g", [ELSEWHERE])))
    engine.settle()
    (hop,) = engine.hops()
    assert (hop.address, hop.manner, hop.detail) == ("b/api:443", "failing closed", DETAIL)
    assert hop.routes == (Key("HTTPRoute", "a", "r"),) and hop.policy is None and not hop.recorded
    audit = Audit((hop,), ())
    assert read(msgspec.json.decode(msgspec.json.encode(document(audit)))) == audit
    grant = mk_grant("b/grant", "a")
    engine.apply(keyed(grant))
    engine.settle()
    assert [hop_report.manner for hop_report in engine.hops()] == ["plaintext"]
    engine.apply({key(grant): None})
    engine.settle()
    assert [hop_report.manner for hop_report in engine.hops()] == ["failing closed"]


def test_the_existence_of_a_backend_stays_hidden_without_a_grant() -> None:
    engine = Engine(now=NOW.timestamp())
    engine.apply(keyed(mk_class(), mk_gateway("a/g"), mk_route("a/r", "a/g", [ELSEWHERE])))
    engine.settle()
    assert [hop.detail for hop in engine.hops()] == [DETAIL]


def test_a_route_that_is_refused_hides_none_that_is_permitted() -> None:
    engine = Engine(now=NOW.timestamp())
    own = mk_route("b/r", "a/g", [{"name": "api", "port": 443}])
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}]
    engine.apply(keyed(mk_class(), mk_gateway("a/g", listeners=listeners), mk_service("b/api")))
    engine.apply(keyed(mk_route("a/r", "a/g", [ELSEWHERE]), own))
    engine.settle()
    assert [(hop.manner, hop.routes) for hop in engine.hops()] == [
        ("failing closed", (Key("HTTPRoute", "a", "r"),)),
        ("plaintext", (key(own),)),
    ]
    assert [len(hops_of(hop)) > 0 for hop in engine.hops()] == [False, True], "only the permitted one has connections"
