"""Service ports without an endpoint, in a cluster: endpoints come and go there, and some Services are meant to have none."""

from __future__ import annotations

from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.limits import MAX_ENDPOINTS
from lasthop.engine.resolve.settings import IN_CLUSTER
from tests.world import keyed, mk, mk_class, mk_gateway, mk_route, mk_service, mk_slice

LABELS = {"kubernetes.io/service-name": "api"}


def _found(*more: Object, route: bool = True) -> list[Finding]:
    engine = Engine(IN_CLUSTER)
    routes = [mk_route("a/r", "a/gw", [{"name": "api", "port": 443}])] if route else []
    engine.apply(keyed(mk_class(), mk_gateway("a/gw"), mk_service("a/api"), *routes, *more))
    engine.settle()
    return [finding for finding in engine.findings() if finding.reason in ("NoEndpoints", "TooManyEndpoints")]


def test_in_a_cluster_a_service_without_endpoints_is_a_warning_if_a_route_leads_there() -> None:
    (finding,) = _found()
    assert finding.severity is Severity.WARNING
    (finding,) = _found(mk_slice("a/api-1", "api", ["10.0.0.1"], port_name="web"))
    assert "have no TCP port named 'https' (they have 'web')" in finding.message
    assert _found(route=False) == []
    assert _found(mk_slice("a/api-1", "api", ["10.0.0.1"])) == []


def test_a_service_that_is_scaled_to_zero_is_as_it_should_be() -> None:
    assert _found(mk("EndpointSlice", "a/api-1", labels=LABELS, addressType="IPv4", endpoints=[], ports=[])) == []


def _addresses(count: int) -> list[str]:
    return [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(count)]


def test_endpoints_above_the_limit_are_unused_and_the_service_reports_it() -> None:
    full = [mk_slice(f"a/api-{n}", "api", _addresses(MAX_ENDPOINTS + 1000)[n::6]) for n in range(6)]
    (finding,) = _found(*full)
    assert (finding.reason, finding.object) == ("TooManyEndpoints", Key("Service", "a", "api"))
    assert "has 5,000 endpoints or more; of these, 5,000 are used" in finding.message
    assert _found(mk_slice("a/api-1", "api", _addresses(MAX_ENDPOINTS - 1))) == []
