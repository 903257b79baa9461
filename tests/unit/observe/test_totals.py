"""Counters never decrease when proxies appear, disappear or restart."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.edge.observe.totals import MAX_GONE, HopTotals, Totals
from lasthop.engine.plan.observation import HopSeen, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Hop, Protocol

GATEWAY = Key("Gateway", "shop", "web")
ROUTE = Key("HTTPRoute", "shop", "r")
HOP = Hop(GATEWAY, Key("Service", "shop", "api"), 443, Protocol.AUTO)


def traffic(good: int, bad: int = 0) -> Traffic:
    return Traffic((0, good, 0, 0, bad), ((0.1, good), (math.inf, good + bad)))


def report(proxy: str, good: int, bad: int = 0, *, since: float = 1.0, hop: Hop = HOP) -> ProxyReport:
    seen = HopSeen(good, bad, bad, {"fail_verify_san": bad} if bad else {}, traffic=traffic(good, bad))
    return ProxyReport(GATEWAY, proxy, since, 0.0, {hop: seen}, {ROUTE: traffic(good, bad)})


def take(sums: Totals, proxy_report: ProxyReport) -> None:
    for _ in sums.heard(proxy_report):
        pass


def totals(*reports: ProxyReport) -> Totals:
    sums = Totals()
    for proxy_report in reports:
        take(sums, proxy_report)
    return sums


def test_a_report_that_is_repeated_counts_once() -> None:
    sums = totals(report("a", 3, 1), report("a", 3, 1), report("a", 5, 1))
    assert sums.hops[HOP] == HopTotals(5, {"fail_verify_san": 1}, 1, traffic(5, 1))
    assert sums.routes[GATEWAY, ROUTE] == traffic(5, 1)


def test_a_proxy_that_goes_takes_nothing_with_it() -> None:
    sums = totals(report("a", 100), report("b", 50), report("b", 60))
    assert sums.hops[HOP].traffic.requests == 160


def test_one_that_begins_anew_is_added() -> None:
    assert totals(report("a", 100), report("a", 7, since=2.0)).hops[HOP].traffic.requests == 107
    assert totals(report("a", 100), report("a", 7)).hops[HOP].traffic.requests == 107, "also if it does not say so"


def test_a_proxy_speaks_only_of_its_own_gateway() -> None:
    other = HOP._replace(gateway=Key("Gateway", "other", "web"))
    assert totals(report("a", 5, hop=other)).hops == {}


def test_removed_objects_are_forgotten() -> None:
    sums = totals(report("a", 5))
    sums.keep(set(), lambda route: False)
    assert not sums.hops and not sums.routes
    take(sums, report("a", 6))
    sums.forget(GATEWAY)
    assert not sums.hops and not sums.routes


def test_a_proxy_that_falls_silent_leaves_its_totals_and_no_report() -> None:
    sums = totals(report("a", 100), report("b", 50))
    sums.keep_proxies(lambda gateway, proxy: proxy == "b")
    assert {proxy for _, proxy in sums._last} == {"b"}
    assert sums.hops[HOP].traffic.requests == 150 and sums.routes[GATEWAY, ROUTE].requests == 150


def test_one_that_reports_again_after_its_silence_is_not_counted_twice() -> None:
    sums = totals(report("a", 100))
    sums.keep_proxies(lambda gateway, proxy: False)
    take(sums, report("a", 130))
    assert sums.hops[HOP].traffic.requests == 100, "what it counted before is in the totals already"
    take(sums, report("a", 137))
    assert sums.hops[HOP].traffic.requests == 107 and sums.routes[GATEWAY, ROUTE].requests == 107
    sums.keep_proxies(lambda gateway, proxy: False)
    take(sums, report("a", 5, since=2.0))
    assert sums.hops[HOP].traffic.requests == 112, "another process has the name now"


def test_the_names_of_silent_proxies_are_limited_for_each_gateway() -> None:
    sums = totals(*(report(f"p{number}", 1) for number in range(MAX_GONE + 5)))
    sums.keep_proxies(lambda gateway, proxy: False)
    assert [*sums._gone[GATEWAY]] == [f"p{number}" for number in range(5, MAX_GONE + 5)] and not sums._last
    sums.forget(GATEWAY)
    assert not sums._gone


def test_a_report_that_is_taken_in_halfway_is_not_counted_twice() -> None:
    sums, hops = Totals(), [HOP._replace(port=port) for port in (1, 2, 3)]
    whole = report("a", 7)
    whole = ProxyReport(GATEWAY, "a", 1.0, 0.0, {hop: whole.hops[HOP] for hop in hops}, whole.routes)
    steps = sums.heard(whole)
    next(steps), next(steps)
    steps.close()
    take(sums, whole)
    assert {hop: sums.hops[hop].traffic.requests for hop in hops} == dict.fromkeys(hops, 7)
    take(sums, ProxyReport(GATEWAY, "a", 1.0, 0.0))
    assert not sums._last[GATEWAY, "a"].hops and not sums._last[GATEWAY, "a"].routes, "what it counts no more is let go"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 5), st.booleans()), max_size=30))
def test_they_never_fall(steps: list[tuple[str, int, int, bool]]) -> None:
    sums, known = Totals(), dict.fromkeys("abc", (0, 0, 1.0))
    last = HopTotals()
    for proxy, good, bad, again in steps:
        was = known[proxy]
        known[proxy] = (good, bad, was[2] + 1) if again else (was[0] + good, was[1] + bad, was[2])
        take(sums, report(proxy, known[proxy][0], known[proxy][1], since=known[proxy][2]))
        now = sums.hops[HOP]
        assert now.handshakes >= last.handshakes and now.connect_failures >= last.connect_failures
        assert all(ours >= theirs for ours, theirs in zip(now.traffic.codes, last.traffic.codes, strict=True))
        last = now
