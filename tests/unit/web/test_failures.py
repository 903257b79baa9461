"""The failures that the page shows as they come in."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.observation import EndpointSeen, HopSeen
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.web.failures import KEPT, Failed, RecentFailures, latest, observed_failures
from lasthop.web.picture import line, line_id

GATEWAY, SERVICE = Key("Gateway", "edge", "web"), Key("Service", "shop", "api")


def entry(path: str = "/", why: str | None = "certificate has expired", hop: Hop | None = None) -> AccessLogEntry:
    cluster = (hop or Hop(GATEWAY, SERVICE, 443, Protocol.AUTO)).name
    return AccessLogEntry(method="GET", authority="a.example", path=path, status=503, upstream_cluster=cluster, why=why)


def test_the_same_failure_is_counted_and_its_last_request_shown() -> None:
    recent = RecentFailures()
    recent.add(entry("/one"), 1.0)
    recent.add(entry("/other", why="backend has no ready endpoint"), 2.0)
    recent.add(entry("/two"), 3.0)
    first, second = recent.last()
    assert (first.count, first.last, first.request, first.status) == (2, 3.0, "GET a.example/two", "503")
    assert second.count == 1


def test_however_failures_differ_only_the_last_are_kept() -> None:
    recent = RecentFailures()
    for number in range(1000):
        recent.add(entry(why=f"why {number}"), float(number))
    assert [failure.why for failure in recent.last()] == [f"why {number}" for number in range(999, 999 - KEPT, -1)]


def test_a_backends_own_error_is_called_that() -> None:
    recent = RecentFailures()
    recent.add(entry(why=None), 1.0)
    assert recent.last()[0].why == "the backend responded with 503"


def test_a_failure_names_the_line_of_its_cluster() -> None:
    recent = RecentFailures()
    recent.add(entry(hop=Hop(GATEWAY, SERVICE, 443, Protocol.H1_UPGRADE)), 1.0)
    recent.add(entry(hop=Hop(GATEWAY, Key("XBackend", "shop", "far"), 443, Protocol.AUTO)), 2.0)
    recent.add(entry(hop=Hop(GATEWAY, SERVICE, 443, Protocol.PASSTHROUGH)), 3.0)
    assert [failure.line for failure in recent.last()] == [
        line_id(GATEWAY, SERVICE, 443, "passthrough"),
        line_id(GATEWAY, Key("XBackend", "shop", "far"), 443),
        line_id(GATEWAY, SERVICE, 443),
    ]
    report = HopReport(GATEWAY, SERVICE, 443, Strength.PLAINTEXT, "", outside=Protocol.PASSTHROUGH)
    assert line(report).id == recent.last()[0].line


def test_foreign_clusters_have_no_line() -> None:
    recent = RecentFailures()
    for cluster in ("", "xds", "a/b/c/d/e/f", "a/b/c/d/²/f", "/".join("x" * 50)):
        recent.add(AccessLogEntry(upstream_cluster=cluster, why="odd"), 1.0)
    assert {failure.line for failure in recent.last()} == {""}


def test_what_proxies_report_is_shown_where_no_request_says_more() -> None:
    endpoints = (
        EndpointSeen("10.0.0.1:1", 7, "refused", last_failure=5.0),
        EndpointSeen("10.0.0.2:1", 0),
        EndpointSeen("10.0.0.3:1", 2, "x", last_failure=9.0),
    )
    report = HopReport(GATEWAY, SERVICE, 443, Strength.VERIFIED, "", routes=(Key("HTTPRoute", "shop", "api"),))
    shown_line = line(report, HopSeen(endpoints=endpoints))
    request = Failed(6.0, 3, "refused", shown_line.id, "HTTPRoute shop/api", "10.0.0.1:1", "GET /")
    shown = latest([request], observed_failures([shown_line]))
    assert [(failure.endpoint, failure.count) for failure in shown] == [("10.0.0.3:1", 2), ("10.0.0.1:1", 3)]
