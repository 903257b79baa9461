"""One proxy's figures: bounded for any input, and growing across Envoy's resets."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.edge.observe.evidence import ConnectionOutcome, EndpointCounts, HopCounts, ServedRequest
from lasthop.edge.observe.tally import MAX_WATCHED, Tally
from lasthop.engine.plan.observation import MAX_ENDPOINTS, MAX_NAMES, MAX_WORDS, LeafCertificate, Traffic
from lasthop.engine.plan.upstream import Connection, Hop, Protocol
from tests.observed import HOP, WEB, A, B, C

ROUTE = Key("HTTPRoute", "shop", "web")


def counted(
    tally: Tally, *, handshakes: int = 0, connections: int = 0, failures: int = 0, now: float = 1.0, **tls: int
) -> None:
    tally.count({Connection(HOP): HopCounts(connections, failures, handshakes, tls)}, now)


def test_figures_are_those_of_the_counters() -> None:
    tally = Tally(WEB, now=0.0)
    counted(tally, handshakes=7, failures=3, fail_verify_san=2, connection_error=1)
    seen = tally.report(1.0).hops[HOP]
    assert (seen.handshakes, seen.handshake_failures, seen.connect_failures) == (7, 3, 3)
    assert seen.tls_failures == {"fail_verify_san": 2, "connection_error": 1}


def test_figures_grow_on_when_envoy_begins_anew() -> None:
    tally = Tally(WEB, now=0.0)
    for handshakes in (5, 6, 1, 2):
        counted(tally, handshakes=handshakes)
    assert tally.report(1.0).hops[HOP].handshakes == 8


def test_a_request_counts_for_as_many_as_it_stands_for() -> None:
    tally = Tally(WEB, now=0.0)
    for status, seconds, weight in ((200, 0.02, 1.0), (204, 0.3, 2.5), (101, 60.0, 1.0), (503, 0.001, 1.0), (404, 0.02, 1.5)):
        tally.request(ServedRequest(ROUTE, HOP, status, seconds, weight))
    report = tally.report(1.0)
    traffic = report.hops[HOP].traffic
    assert traffic == report.routes[ROUTE]
    assert traffic.codes == (1, 4, 0, 2, 1) and traffic.errors == 1
    assert dict(traffic.latency)[0.025] == 4 and dict(traffic.latency)[10.0] == 6 and dict(traffic.latency)[inf] == 7


@pytest.mark.parametrize("first", ["line", "count"])
@pytest.mark.parametrize("errors", [0, 1])
def test_a_request_without_an_answer_is_a_failed_handshake_only_if_envoy_counts_a_tls_error(first: str, errors: int) -> None:
    tally = Tally(WEB, now=0.0)
    unanswered = ConnectionOutcome(HOP, A, 1.0, "closed", connected=True, request=True, refused="wants a client certificate")
    counted(tally)
    if first == "line":
        tally.take(unanswered)
    counted(tally, handshakes=1, connection_error=errors)
    if first == "count":
        tally.take(unanswered)
    (seen,) = tally.report(2.0).hops[HOP].endpoints
    expected = ("wants a client certificate", True, False) if errors else ("closed", False, True)
    assert (seen.failure, seen.handshake, seen.request) == expected
    tally.take(ConnectionOutcome(HOP, A, 3.0))
    (seen,) = tally.report(4.0).hops[HOP].endpoints
    assert not (seen.in_a_row or seen.handshake or seen.request)


def test_a_client_certificate_stays_rejected_until_a_success_even_if_envoy_counts_no_further_error() -> None:
    tally = Tally(WEB, now=0.0)

    def unanswered(at: float) -> tuple[str, bool, bool]:
        tally.take(ConnectionOutcome(HOP, A, at, "closed", connected=True, request=True, refused="wants a client certificate"))
        (seen,) = tally.report(at).hops[HOP].endpoints
        return seen.failure, seen.handshake, seen.request

    counted(tally, connection_error=1)
    counted(tally, handshakes=1, connection_error=2)
    assert unanswered(1.0) == ("wants a client certificate", True, False)
    for handshakes in (2, 3, 4):
        counted(tally, handshakes=handshakes, connection_error=2)
    assert unanswered(2.0) == ("wants a client certificate", True, False)
    tally.take(ConnectionOutcome(HOP, A, 3.0))
    assert unanswered(4.0) == ("closed", False, True)


def test_a_connection_that_ended_at_once_is_a_failure_only_if_envoy_counts_a_tls_error() -> None:
    tally = Tally(WEB, now=0.0)
    ended = ConnectionOutcome(HOP, A, 1.0, "connection ended right after the TLS handshake", handshake=True, doubtful=True)
    counted(tally)
    tally.take(ended)
    counted(tally)
    assert tally.report(2.0).hops[HOP].endpoints == ()
    tally.take(ended)
    counted(tally, connection_error=1)
    assert [endpoint.failures for endpoint in tally.report(3.0).hops[HOP].endpoints] == [1]


def test_a_stream_whose_connections_are_made_and_refused_has_not_worked_before() -> None:
    tally, stream = Tally(WEB, now=0.0), HOP._replace(protocol=Protocol.TCP)
    tally.count({}, 0.5)
    tally.take(
        ConnectionOutcome(stream, A, 1.0, "connection ended right after the TLS handshake", handshake=True, doubtful=True)
    )
    tally.count({Connection(stream): HopCounts(1, 0, 1, {"connection_error": 1}, 0, 1)}, 2.0)
    assert tally.watched() == [stream]
    tally.count_endpoints({Connection(stream): {A: EndpointCounts(1, 0, 0)}}, 2.0)
    (seen,) = tally.report(3.0).hops[stream].endpoints
    assert (seen.in_a_row, seen.last_success) == (1, 0.0)


def test_an_error_that_is_counted_before_its_line_is_read_counts_too() -> None:
    tally = Tally(WEB, now=0.0)
    tally.count({}, 0.5)
    counted(tally, connection_error=1)
    tally.take(ConnectionOutcome(HOP, A, 1.0, "connection ended", handshake=True, doubtful=True))
    counted(tally, connection_error=1)
    assert [endpoint.failures for endpoint in tally.report(3.0).hops[HOP].endpoints] == [1]


def test_a_stream_that_is_refused_after_the_handshake_is_failing_though_its_connection_was_made() -> None:
    tally, stream = Tally(WEB, now=0.0), HOP._replace(protocol=Protocol.TCP)
    tally.count({}, 0.5)
    tally.take(ConnectionOutcome(stream, A, 1.0, "connection ended", handshake=True, doubtful=True))
    tally.count({Connection(stream): HopCounts(4, 0, 4, {"connection_error": 4}, requests=4)}, 2.0)
    assert tally.watched() == [stream]
    for now in (2.0, 3.0):
        tally.count_endpoints({Connection(stream): {A: EndpointCounts(4, 0, int(now) + 2)}}, now)
    (seen,) = tally.report(3.0).hops[stream].endpoints
    assert seen.in_a_row == 1 and seen.last_success == 0.0


def test_a_stream_whose_refusals_are_in_no_log_is_known_by_the_counters() -> None:
    tally, stream = Tally(WEB, now=0.0), HOP._replace(protocol=Protocol.TCP)
    tally.count({}, 0.5)
    refused = {Connection(stream): HopCounts(4, 0, 4, {"connection_error": 4}, requests=4)}
    tally.count(refused, 2.0)
    assert tally.watched() == [], "their lines may be read yet"
    tally.count(refused, 5.0)
    assert tally.watched() == [stream]
    tally.count_endpoints({Connection(stream): {A: EndpointCounts(4, 0, 4)}}, 5.0)
    (seen,) = tally.report(5.0).hops[stream].endpoints
    assert seen.in_a_row == 1 and seen.handshake and "wants a client certificate" in seen.failure


def test_an_endpoint_in_no_log_works_once_its_answers_grow_beside_one_that_has_failed() -> None:
    """As a collector of spans that has moved: calls to it are in no access log."""
    tally = Tally(WEB, now=0.0)
    tally.take(ConnectionOutcome(HOP, A, 1.0, "TLS handshake failed", handshake=True))
    other = "10.0.0.9:1"
    for now in (2.0, 3.0):
        tally.count({Connection(HOP): HopCounts(2, 1, 0, requests=3)}, now)
        tally.count_endpoints({Connection(HOP): {other: EndpointCounts(1, 0, 3)}}, now)
        assert [endpoint.address for endpoint in tally.report(now).hops[HOP].endpoints] == [A]
    tally.count({Connection(HOP): HopCounts(2, 1, 0, requests=4)}, 4.0)
    tally.count_endpoints({Connection(HOP): {other: EndpointCounts(1, 0, 4)}}, 4.0)
    seen = {endpoint.address: endpoint.last_success for endpoint in tally.report(4.0).hops[HOP].endpoints}
    assert seen == {A: 0.0, other: 4.0}


def test_counts_from_before_this_process_are_no_news() -> None:
    tally = Tally(WEB, now=0.0)
    counted(tally, failures=100, fail_verify_san=100)
    assert tally.watched() == []
    counted(tally, failures=101, fail_verify_san=101)
    assert tally.watched() == [HOP]


def test_hops_to_look_at_take_turns() -> None:
    tally = Tally(WEB, now=0.0)
    hops = [HOP._replace(port=port) for port in range(1, 3 * MAX_WATCHED)]
    for hop in hops:
        tally.take(ConnectionOutcome(hop, A, 1.0, "no"))
    turns = [tally.watched() for _ in range(3)]
    assert max(map(len, turns)) == MAX_WATCHED
    assert {hop for turn in turns for hop in turn} == set(hops)


def test_hops_of_other_gateways_are_ignored() -> None:
    tally = Tally(WEB, now=0.0)
    foreign = Hop(Key("Gateway", "shop", "other"), HOP.backend, 443, Protocol.AUTO)
    tally.take(ConnectionOutcome(foreign, A, 1.0, "no"))
    tally.count({Connection(foreign): HopCounts(1)}, 1.0)
    assert tally.report(2.0).hops == {}


def test_a_hop_that_envoy_does_not_have_any_more_is_forgotten_in_time() -> None:
    tally = Tally(WEB, now=0.0)
    tally.take(ConnectionOutcome(HOP, A, 1.0))
    tally.count({}, 3000.0)
    assert HOP in tally.report(3000.0).hops
    tally.count({}, 4000.0)
    assert tally.report(4000.0).hops == {}


LONG = st.text(max_size=30).map(lambda text: text * 12)


@given(st.lists(st.tuples(LONG, st.lists(LONG, max_size=12)), max_size=40))
def test_texts_of_backends_are_printable_and_bounded(texts: list[tuple[str, list[str]]]) -> None:
    tally = Tally(WEB, now=0.0)
    counted(tally)
    for number, (text, names) in enumerate(texts):
        leaf = LeafCertificate(text, text, tuple(names), 0.0, 0.0)
        tally.take(ConnectionOutcome(HOP, f"10.0.0.{number}:1", 1.0, text, certificate=leaf))
        tally.take(ConnectionOutcome(HOP, f"10.0.1.{number}:1", 1.0, "closed", connected=True, request=True, refused=text))
    counted(tally, connection_error=1)
    for seen in tally.report(2.0).hops.values():
        assert len(seen.endpoints) <= MAX_ENDPOINTS
        for endpoint in seen.endpoints:
            shown = [endpoint.failure]
            if endpoint.certificate:
                assert len(endpoint.certificate.names) <= MAX_NAMES
                shown += [endpoint.certificate.subject, endpoint.certificate.issuer, *endpoint.certificate.names]
            assert all(text.isprintable() and len(text) <= MAX_WORDS for text in shown)


def test_failing_endpoints_are_kept_among_many() -> None:
    tally = Tally(WEB, now=0.0)
    for number in range(MAX_ENDPOINTS // 2):
        tally.take(ConnectionOutcome(HOP, f"10.0.0.{number}:1", float(number), "no"))
    for number in range(1000):
        tally.take(ConnectionOutcome(HOP, f"10.1.{number}:1", 100.0 + number))
    endpoints = tally.report(2.0).hops[HOP].endpoints
    assert [bool(endpoint.in_a_row) for endpoint in endpoints] == [True] * (MAX_ENDPOINTS // 2) + [False] * (
        MAX_ENDPOINTS // 2
    )


def test_quantiles_are_interpolated_between_the_bounds() -> None:
    traffic = Traffic((0, 100, 0, 0, 0), ((0.1, 50), (0.2, 90), (inf, 100)))
    assert traffic.quantile(0.5) == 0.1
    assert traffic.quantile(0.7) == pytest.approx(0.15)
    assert traffic.quantile(0.99) == 0.2
    assert Traffic().quantile(0.5) is None


@pytest.mark.parametrize(
    ("tls_failures", "timeouts", "words"),
    [
        ({"fail_verify_san": 2}, 0, "certificate is for another name than the policy wants"),
        ({"fail_verify_cert_hash": 2}, 0, "certificate is not one of those that the policy pins"),
        ({"fail_verify_error": 2}, 0, "certificate was not accepted: it is signed by an unknown CA"),
        ({"connection_error": 2}, 0, "TLS handshake failed: the backend does not speak TLS on this port"),
        ({}, 2, "connect timeout"),
        ({}, 0, "no connection: nothing listens on the backend's port"),
    ],
)
def test_failures_from_counters_are_reported_without_details(tls_failures: dict[str, int], timeouts: int, words: str) -> None:
    tally = Tally(WEB, now=0.0)
    tally.count({Connection(HOP): HopCounts()}, 1.0)
    for n in (1, 2):
        seen = {name: count * n for name, count in tls_failures.items()}
        tally.count({Connection(HOP): HopCounts(2 * n, 2 * n, 0, seen, connect_timeouts=timeouts * n)}, 1.0 + n)
        tally.count_endpoints({Connection(HOP): {A: EndpointCounts(2 * n, 2 * n)}}, 1.0 + n)
    (endpoint,) = tally.report(5.0).hops[HOP].endpoints
    assert endpoint.failure.startswith(words) and endpoint.failure.endswith("(from Envoy's counters, without details)")
    assert endpoint.handshake is bool(tls_failures)


def test_an_endpoint_that_answers_beside_one_that_fails_is_known_without_a_sample() -> None:
    tally = Tally(WEB, now=0.0)
    tally.count({Connection(HOP): HopCounts()}, 1.0)
    tally.take(ConnectionOutcome(HOP, A, 1.5, "certificate has expired", handshake=True))
    tally.count({Connection(HOP): HopCounts(12, 11, 1, {"fail_verify_error": 11}, requests=5)}, 2.0)
    assert tally.watched() == [HOP]
    tally.count_endpoints({Connection(HOP): {A: EndpointCounts(11, 11), B: EndpointCounts(1, 0, 5), C: EndpointCounts()}}, 2.0)
    seen = {endpoint.address: endpoint for endpoint in tally.report(3.0).hops[HOP].endpoints}
    assert seen.keys() == {A, B}
    assert seen[A].in_a_row and (seen[B].in_a_row, seen[B].last_success) == (0, 2.0)
