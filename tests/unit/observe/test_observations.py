"""Dialogues: events at a hop, and its resulting state. Time is moved by hand."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.observe.evidence import ConnectionOutcome, EndpointCounts, HopCounts
from lasthop.edge.observe.observations import AT_ONCE, DETAILS_HOLD, EXPIRES, FIRST_DETAILS_HOLD, MAX_PROXIES, Observations
from lasthop.edge.observe.tally import MAX_CONFIGS, Tally
from lasthop.edge.observe.verdict import EVIDENCE_EXPIRY_SECONDS, FIRST_HOLD, HOLD
from lasthop.engine.plan.observation import EndpointSeen, Failure, HopSeen, HopState, LeafCertificate, ProxyReport, Traffic
from lasthop.engine.plan.upstream import Connection, Hop
from tests.observed import HOP, LEAF, WEB, WRONG_NAME, A, B, C, World

REFUSED = "connection refused: nothing listens on the backend's port"


def test_a_hop_without_traffic_is_untried() -> None:
    world = World()
    world.wait(10)
    assert world.health == "untried" and world.states == []


def test_the_first_success_makes_it_working_and_shows_the_certificate() -> None:
    world = World()
    world.succeeds()
    world.wait()
    assert world.health == "working"
    assert world.state.certificates == (LEAF,) and world.state.tls_versions == ("TLSv1.3",)
    assert world.state.endpoints == 1


def test_one_failure_is_enough_where_nothing_has_ever_succeeded() -> None:
    world = World()
    world.fails()
    began = world.now
    world.wait(FIRST_HOLD + 1)
    assert world.health == "failing" and world.state.since == began
    assert world.state.failures == (Failure(WRONG_NAME, (A,), handshake=True),)


def test_a_single_failure_among_successes_is_not_failing() -> None:
    world = World()
    for second in range(60):
        world.fails() if second == 30 else world.succeeds()
        world.wait()
    assert world.healths == ["untried", "working"]


def test_a_single_failure_that_nothing_follows_is_not_failing() -> None:
    world = World()
    world.succeeds()
    world.wait(100)
    world.fails()
    world.wait(100)
    assert world.healths == ["untried", "working"]


def test_a_backend_that_breaks_is_failing_once_that_has_lasted() -> None:
    world = World()
    world.succeeds()
    world.wait(100)
    for _ in range(3):
        world.fails()
        world.wait()
    assert world.health == "working"
    world.fails()
    world.wait(HOLD)
    assert world.healths == ["untried", "working", "failing"]


def test_it_recovers_with_the_first_success() -> None:
    world = World()
    world.fails()
    world.wait(100)
    world.succeeds()
    world.wait()
    assert world.healths == ["untried", "failing", "working"]
    assert world.state.failures == () and world.now - 1 <= world.state.since <= world.now


def test_it_recovers_by_the_counters_where_the_samples_missed_it() -> None:
    world = World()
    world.fails()
    world.wait(10)
    world.succeeds(sampled=False)
    world.wait(2)
    assert world.healths == ["untried", "failing", "working"]


def test_a_hop_that_no_sample_shows_is_working_by_its_counters() -> None:
    world = World()
    world.wait(5)
    for _ in range(2 * round(EVIDENCE_EXPIRY_SECONDS) // 60):
        world.succeeds(sampled=False)
        world.wait(60)
    assert world.healths == ["untried", "working"] and world.state.working == (A,)


def test_a_hop_that_was_sampled_once_stays_working_by_its_counters() -> None:
    world = World()
    world.succeeds()
    for _ in range(2 * round(EVIDENCE_EXPIRY_SECONDS) // 60):
        world.succeeds(sampled=False)
        world.wait(60)
    assert world.healths == ["untried", "working"]


def test_successes_that_no_sample_shows_keep_an_endpoint_with_some_failures_working() -> None:
    world = World()
    world.succeeds()
    world.wait()
    for _ in range(120):
        world.succeeds(sampled=False)
        world.fails()
        world.fails()
        world.wait()
    assert world.healths == ["untried", "working"]


def test_an_endpoint_that_alternates_with_every_connection_does_not_flap() -> None:
    world = World()
    world.succeeds()
    for _ in range(300):
        world.fails()
        world.wait(0.5)
        world.succeeds()
        world.wait(0.5)
    assert len(world.healths) == 2


def test_an_endpoint_that_comes_and_goes_by_the_minute_settles_in_failing() -> None:
    world = World()
    for minute in range(60):
        for _ in range(20):
            world.fails() if minute % 2 else world.succeeds()
            world.wait(3)
    assert world.healths[-1] == "failing" and len(world.healths) < 14, world.healths


def test_long_silence_makes_it_untried_again() -> None:
    world = World()
    world.fails()
    world.wait(EVIDENCE_EXPIRY_SECONDS - 1)
    assert world.health == "failing"
    world.wait(2)
    assert world.healths == ["untried", "failing", "untried"]


def test_a_long_connection_is_not_silence() -> None:
    world = World()
    world.succeeds()
    world.active = 1
    world.wait(3 * EVIDENCE_EXPIRY_SECONDS)
    assert world.healths == ["untried", "working"]
    world.active = 0
    world.wait(EVIDENCE_EXPIRY_SECONDS + 1)
    assert world.health == "untried"


def test_two_of_three_endpoints_fail() -> None:
    world = World()
    for _ in range(10):
        world.fails(A)
        world.fails(B)
        world.succeeds(C)
        world.wait()
    assert world.health == "partly failing" and world.state.endpoints == 3
    assert world.state.failures == (Failure(WRONG_NAME, (A, B), handshake=True),)
    assert world.state.working == (C,)


def test_different_reasons_are_listed_with_the_most_common_first() -> None:
    world = World()
    for _ in range(10):
        world.fails(A, REFUSED)
        world.fails(B)
        world.fails(C)
        world.wait()
    assert [(failure.words, len(failure.endpoints)) for failure in world.state.failures] == [(WRONG_NAME, 2), (REFUSED, 1)]


def test_an_endpoint_whose_failures_retries_hide_is_known_by_its_counters() -> None:
    world = World()
    world.succeeds(B)
    world.wait()
    for _ in range(10):
        world.fails(A, logged=False)
        world.succeeds(B)
        world.wait()
    assert world.health == "partly failing"
    assert [failure.endpoints for failure in world.state.failures] == [(A,)]
    assert world.state.failures[0].words.startswith("certificate is for another name")


def test_no_endpoint_is_failing_until_there_is_one_again() -> None:
    world = World()
    world.succeeds(A)
    world.wait(60)
    for _ in range(10):
        world.tally().take(ConnectionOutcome(HOP, "", world.now, "backend has no ready endpoint", config=world.config))
        world.wait()
    assert world.health == "failing"
    assert world.state.failures == (Failure("backend has no ready endpoint", ()),)
    world.succeeds(B)
    world.wait()
    assert world.health == "working"


def test_failures_under_another_configuration_say_nothing_of_this_one() -> None:
    world = World()
    world.fails()
    world.wait(10)
    assert world.health == "failing"
    world.config = "second"
    world.wait(10)
    assert world.health == "untried"
    world.fails()
    world.wait(5)
    assert world.health == "failing"


def test_successes_under_another_configuration_say_nothing_of_this_one() -> None:
    """After a policy is tightened, a hop works once a connection under that policy has been made, and not before."""
    world = World()
    for _ in range(20):
        world.succeeds()
        world.wait()
    assert world.health == "working"
    world.config = "second"
    world.active = 1
    world.wait(60)
    assert world.health == "untried" and world.state == HopState()
    world.fails()
    world.wait(FIRST_HOLD + 1)
    assert world.health == "failing", "as one that has never worked"
    assert world.state.certificates == ()


def test_a_request_that_began_before_the_change_is_evidence_of_what_was_before() -> None:
    world = World()
    world.config = "second"
    world.wait(5)
    world.tally().take(ConnectionOutcome(HOP, A, world.now, certificate=LEAF, tls_version="TLSv1.3", config="first"))
    world.wait(10)
    assert world.health == "untried"
    assert world.observations.state(HOP, "first").health == "working"


def test_a_controller_that_starts_anew_tells_configurations_apart_as_the_one_before_it() -> None:
    world = World()
    world.fails()
    world.wait(20)
    world.config = "second"
    world.succeeds()
    world.wait(20)
    fresh = Observations()
    fresh.heard(world.tally().report(world.now), world.now)
    fresh.step(world.now)
    assert {config: str(fresh.state(HOP, config).health) for config in ("first", "second", "")} == {
        "first": "failing",
        "second": "working",
        "": "untried",
    }


def test_two_proxies_of_which_one_has_not_heard_of_the_change_are_not_mixed_up() -> None:
    world = World("pod-1", "pod-2")
    world.config = "second"
    world.fails(proxy="pod-1")
    late = ConnectionOutcome(HOP, A, world.now, certificate=LEAF, tls_version="TLSv1.3", config="first")
    world.tally("pod-2").take(late)
    world.wait(10)
    assert world.health == "failing" and world.state.working == ()
    assert world.state.failures == (Failure(WRONG_NAME, (A,), handshake=True),), "the other has seen nothing of it"


def test_a_hop_that_returns_to_a_configuration_is_judged_by_what_was_seen_under_it() -> None:
    world = World()
    world.succeeds()
    world.wait(5)
    world.config = "second"
    world.fails()
    world.wait(5)
    world.config = "first"
    world.wait(5)
    assert world.health == "working"


def test_the_latest_of_endless_configurations_stay_and_counts_stay_complete() -> None:
    world = World()
    for number in range(3 * MAX_CONFIGS):
        world.config = f"{number}"
        world.connections = {}
        world.succeeds()
        world.wait(2)
    seen = world.tally().report(world.now).hops[HOP]
    assert len({endpoint.config for endpoint in seen.endpoints}) == MAX_CONFIGS and world.health == "working"
    assert seen.endpoints[0].config == world.config, "the present one comes first"
    assert seen.handshakes == 3 * MAX_CONFIGS


def test_one_of_two_proxies_cannot_reach_the_backend() -> None:
    world = World("pod-1", "pod-2")
    for _ in range(10):
        world.succeeds(proxy="pod-1")
        world.fails(words=REFUSED, proxy="pod-2")
        world.wait()
    assert world.health == "partly failing"
    assert world.state.failures == (Failure(REFUSED, (A,), ("pod-2",)),)


def test_both_proxies_see_the_same_so_neither_is_named() -> None:
    world = World("pod-1", "pod-2")
    for proxy in ("pod-1", "pod-2"):
        world.fails(proxy=proxy)
    world.wait(5)
    assert world.state.failures == (Failure(WRONG_NAME, (A,), handshake=True),)


def test_a_proxy_that_is_gone_counts_no_more() -> None:
    world = World("pod-1", "pod-2")
    world.succeeds(proxy="pod-1")
    world.fails(proxy="pod-2")
    world.wait(10)
    assert world.health == "partly failing"
    del world.tallies["pod-2"]
    world.wait(EXPIRES + 1)
    assert world.health == "working"


def test_a_proxy_with_another_clock_is_understood() -> None:
    world, ahead = World(), 10_000.0
    world.fails()
    for _ in range(5):
        world.now += 1
        report = world.tally().report(world.now)
        endpoints = tuple(
            msgspec.structs.replace(e, failing_since=e.failing_since + ahead, last_failure=e.last_failure + ahead)
            for e in report.hops[HOP].endpoints
        )
        hops = {HOP: msgspec.structs.replace(report.hops[HOP], endpoints=endpoints)}
        world.observations.heard(msgspec.structs.replace(report, at=world.now + ahead, hops=hops), world.now)
        world.step()
    assert world.health == "failing" and world.state.since < world.now


def test_the_mistake_after_a_correction_is_reported_soon() -> None:
    world = World()
    for words in ("certificate has expired", WRONG_NAME):
        for _ in range(round(FIRST_DETAILS_HOLD) + 1):
            world.fails(words=words)
            world.wait()
        assert [failure.words for failure in world.state.failures] == [words]
    world.wait(2 * DETAILS_HOLD)
    world.fails(words=REFUSED)
    world.wait(2)
    assert [failure.words for failure in world.state.failures] == [REFUSED]
    world.fails(words=WRONG_NAME)
    world.wait(FIRST_DETAILS_HOLD + 1)
    assert [failure.words for failure in world.state.failures] == [WRONG_NAME], "after a calm time, as soon as at first"


def test_a_hostile_backend_with_changing_names_changes_reports_seldom() -> None:
    world = World()
    for number in range(600):
        world.fails(words=f"certificate is for name{number}.example")
        world.wait(0.5)
    assert world.healths == ["untried", "failing"]
    assert len(world.states) <= 300 / DETAILS_HOLD + 5


def test_a_hostile_backend_that_shows_another_certificate_each_time_is_bounded() -> None:
    world = World()
    for number in range(600):
        world.succeeds(f"10.0.{number % 250}.1:443", leaf=LeafCertificate(f"CN={number}", "CN=ca", (), 0.0, float(number)))
        world.wait(0.5)
    assert len(world.states) <= 300 / DETAILS_HOLD + 5
    assert len(world.state.certificates) <= 10 and world.state.endpoints <= 32


def test_a_proxy_speaks_only_of_its_own_gateway() -> None:
    world = World()
    world.fails()
    foreign = ProxyReport(WEB._replace(name="other"), "", 0.0, world.now, world.tally().report(world.now).hops)
    for _ in range(10):
        world.now += 1
        world.observations.heard(msgspec.structs.replace(foreign, at=world.now), world.now)
        world.step()
    assert world.states == []


def test_a_gateway_that_is_gone_is_forgotten() -> None:
    world = World()
    world.fails()
    world.wait(5)
    world.observations.forget(WEB)
    world.step()
    assert world.health == "untried" and world.observations.hops() == set()


def test_counts_alone_are_no_news() -> None:
    world = World()
    world.succeeds()
    world.wait()
    for _ in range(100):
        world.succeeds()
        world.wait()
    assert len(world.states) == 1


def test_a_history_ends_where_a_fresh_start_with_its_last_report_ends() -> None:
    world = World()
    for second in range(100):
        world.fails(A)
        (world.fails if second % 50 > 25 else world.succeeds)(B)
        world.wait()
    world.wait(400)
    fresh = Observations()
    fresh.heard(world.tally().report(world.now), world.now)
    key = Connection(HOP, world.config)
    assert fresh.step(world.now)[key] == msgspec.structs.replace(world.state, since=fresh.state(*key).since)


def test_obsolete_deadlines_do_not_pile_up() -> None:
    world = World()
    for number in range(2_000):
        world.fails(words=f"name{number}")
        world.wait(0.1)
    assert len(world.observations._due) < 50


def test_an_unknown_name_is_not_a_hop() -> None:
    assert Hop.parse(HOP.name) == HOP
    xbackend = HOP._replace(backend=HOP.backend._replace(kind="XBackend"))
    assert Hop.parse(xbackend.name) == xbackend
    for name in ("refused", "", "xds", "a/b/c/d/x/auto", "a/b/c/d/1/none", "a/b/c/d/1/auto/more/and", "a/b/c/d/١/auto"):
        assert Hop.parse(name) is None, name


def test_the_first_certificate_is_shown_at_once_also_where_counters_told_of_the_success_before() -> None:
    world = World()
    world.fails()
    world.wait(5)
    assert world.health == "failing"
    world.succeeds(leaf=None)
    world.wait(2)
    assert (world.health, world.state.certificates) == ("working", ())
    world.succeeds()
    world.wait(2)
    assert world.state.certificates == (LEAF,)


def test_an_ejected_endpoint_stays_failing_although_nothing_fails_any_more() -> None:
    world = World()
    for _ in range(3):
        world.succeeds(A)
        world.fails(B)
        world.wait()
    world.ejected = {B}
    for _ in range(60):
        world.succeeds(A)
        world.wait()
    assert world.state.ejected == (B,) and world.health == "partly failing"
    world.ejected = set()
    world.wait(5)
    assert world.state.ejected == (B,), "nobody has tried it since"
    world.succeeds(B)
    world.wait(2)
    assert not world.state.ejected and world.health == "working"
    assert world.healths == ["untried", "working", "partly failing", "working"]


def test_an_endpoint_is_ejected_again_and_again_without_news() -> None:
    world = World()
    for _ in range(3):
        world.succeeds(A)
        world.fails(B)
        world.wait()
    changes = 0
    for _ in range(5):
        world.ejected = {B}
        world.wait(30)
        world.ejected = set()
        world.succeeds(A)
        world.fails(B)
        world.wait(2)
        changes = changes or len(world.states)
    assert len(world.states) == changes


def test_what_the_counters_know_of_an_endpoint_is_completed_once_they_know_more() -> None:
    tally = Tally(WEB, now=0.0)
    tally.count({}, 0.5)
    tally.count({Connection(HOP): HopCounts(1, 1, 0)}, 1.0)
    tally.count_endpoints({Connection(HOP): {A: EndpointCounts(1, 1, 0)}}, 1.0)
    tally.count_endpoints({Connection(HOP): {A: EndpointCounts(2, 2, 0)}}, 1.5)
    (seen,) = tally.report(1.6).hops[HOP].endpoints
    assert seen.failure.startswith("no connection") and not seen.handshake
    tally.count({Connection(HOP): HopCounts(2, 2, 0, {"fail_verify_san": 1})}, 2.0)
    (seen,) = tally.report(2.1).hops[HOP].endpoints
    assert seen.failure.startswith("certificate is for another name") and seen.handshake


def test_counters_do_not_replace_details_from_the_log() -> None:
    world = World()
    world.fails(A)
    world.wait(2)
    world.fails(A, logged=False)
    world.wait(2)
    assert [failure.words for failure in world.state.failures] == [WRONG_NAME]


def test_a_burst_whose_failures_retries_have_hidden_is_enough() -> None:
    world = World()
    world.wait()
    for _ in range(8):
        world.succeeds(A)
        world.fails(B, logged=False)
    world.wait(10)
    assert world.health == "partly failing" and [failure.endpoints for failure in world.state.failures] == [(B,)]


def test_an_ejected_endpoint_has_failed_also_without_an_observed_failure() -> None:
    world = World()
    for _ in range(8):
        world.succeeds(A)
        world.succeeds(B)
        world.fails(B, logged=False)
    world.wait(3)
    assert world.health == "working"
    world.ejected = {B}
    world.wait(10)
    assert world.health == "partly failing" and world.state.ejected == (B,)


def test_a_gateway_cannot_use_up_the_places_of_another() -> None:
    observations, other = Observations(), Key("Gateway", "other", "web")
    taken = [observations.heard(ProxyReport(WEB, f"p{number}", 1.0, 1.0), 1.0) for number in range(MAX_PROXIES + 1)]
    assert taken == [True] * MAX_PROXIES + [False]
    assert observations.heard(ProxyReport(WEB, "p0", 1.0, 2.0), 2.0), "one that is known goes on"
    assert observations.heard(ProxyReport(other, "p0", 1.0, 1.0), 1.0)
    assert len(observations.proxies(WEB)) == MAX_PROXIES and len(observations.proxies(other)) == 1
    assert observations.reports(WEB, "p0") and not observations.reports(WEB, f"p{MAX_PROXIES}")
    observations.step(1.0 + EXPIRES)
    assert not observations.reports(WEB, "p1")
    assert observations.heard(ProxyReport(WEB, "late", 1.0, 1.0), 40.0), "one that has fallen silent makes room"
    observations.step(40.0 + EXPIRES)
    assert not observations._by_gateway and not observations._proxies


def test_only_the_traffic_of_earlier_reports_is_kept() -> None:
    observations = Observations()
    for second in range(5):
        seen = HopSeen(endpoints=(EndpointSeen(A),), traffic=Traffic((0, second * 10, 0, 0, 0)))
        observations.heard(ProxyReport(WEB, "p", 1.0, second, {HOP: seen}), second)
    (proxy,) = observations._proxies.values()
    assert all(type(figure) is Traffic for _, figures in proxy._figures for figure in figures.values())
    assert observations.rate(HOP).requests == 10


def test_so_many_hops_are_judged_at_once_and_none_is_forgotten() -> None:
    observations = Observations()
    seen = HopSeen(endpoints=(EndpointSeen(A, last_success=10.0),))
    hops = {HOP._replace(port=port): seen for port in range(1, 2 * AT_ONCE + 2)}
    observations.heard(ProxyReport(WEB, "p", 1.0, 10.0, hops), 10.0)
    counts = [len(observations.step(10.0))]
    while observations.pending:
        counts.append(len(observations.step(10.0)))
    assert counts == [AT_ONCE, AT_ONCE, 1]
