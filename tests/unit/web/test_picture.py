"""The page's description of a hop, and its selection of hops."""

from __future__ import annotations

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.plan.observation import Failure, Health, LeafCertificate
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Protocol
from lasthop.web.picture import BUNDLES, SINGLE, Filter, Line, LineBundle, LineState, choose, line

WRONG_NAME = Failure("certificate is for old.example", ("10.0.0.1:8443", "10.0.0.2:8443"))
LEAF = LeafCertificate("CN=a", "CN=ca", ("a.example",), 0.0, 100.0)


def made(hop_report: HopReport, happened: Observed | None = None) -> Line:
    return line(msgspec.structs.replace(hop_report, observed=happened))


def report(
    strength: Strength = Strength.VERIFIED,
    name: str = "shop/api",
    detail: str = "its own CA, for a.example",
    refused: bool = False,
    outside: Protocol | None = None,
) -> HopReport:
    gateway, backend, route = Key("Gateway", "edge", "web"), Key.read("Service", name), Key.read("HTTPRoute", name)
    return HopReport(gateway, backend, 443, strength, detail, refused=refused, outside=outside, routes=(route,))


def seen(health: Health, *failures: Failure, endpoints: int = 3) -> Observed:
    return Observed(health, 1.0, 0.0, 0.0, 0, 0, 0, failures, (LEAF,), (), endpoints)


DRAWN = {
    Strength.PLAINTEXT: LineState.PLAINTEXT,
    Strength.TLS: LineState.WAIVED,
    Strength.WAIVED_ALL: LineState.WAIVED,
    Strength.WAIVED_NAMES: LineState.WAIVED,
    Strength.WAIVED_EXPIRY: LineState.WAIVED,
    Strength.PINNED_ONLY: LineState.VERIFIED,
    Strength.VERIFIED: LineState.VERIFIED,
}
"""While handshakes succeed."""
BAD = {Health.FAILING: LineState.FAILING, Health.PARTLY_FAILING: LineState.PARTLY}


@pytest.mark.parametrize("strength", Strength)
@pytest.mark.parametrize("health", Health)
def test_a_line_is_what_happened_and_nothing_is_verified_before_it_was_tried(strength: Strength, health: Health) -> None:
    expected = LineState.UNTRIED if health is Health.UNTRIED and DRAWN[strength] is LineState.VERIFIED else DRAWN[strength]
    assert made(report(strength), seen(health)).state is BAD.get(health, expected)
    assert made(report(strength, refused=True), seen(health)).state is LineState.FAILING
    for protocol in (Protocol.PASSTHROUGH, Protocol.UDP):
        assert made(report(strength, outside=protocol), seen(health)).state is BAD.get(health, LineState.OUTSIDE)


def test_plaintext_is_worse_than_a_waiver_and_failing_is_worst() -> None:
    worst = [LineState.FAILING, LineState.PARTLY, LineState.PLAINTEXT, LineState.WAIVED, LineState.UNTRIED, LineState.VERIFIED]
    assert sorted(reversed(worst), key=lambda state: state.rank) == worst


@pytest.mark.parametrize(
    "shown, words",
    [
        (made(report(), seen(Health.WORKING)), "its own CA, for a.example"),
        (made(report(), seen(Health.UNTRIED)), "to be verified against its own CA, for a.example"),
        (made(report(), seen(Health.FAILING, WRONG_NAME, endpoints=2)), "certificate is for old.example"),
        (
            made(report(), seen(Health.PARTLY_FAILING, WRONG_NAME)),
            "2 of 3 endpoints: certificate is for old.example (10.0.0.1:8443, 10.0.0.2:8443)",
        ),
        (
            made(report(), seen(Health.PARTLY_FAILING, Failure("refused", ("10.0.0.1:1",), ("web-7",)), endpoints=1)),
            "1 of 1 endpoints from web-7: refused (10.0.0.1:1)",
        ),
        (made(report(), seen(Health.FAILING)), "connections to it fail"),
        (made(report(refused=True, detail="no CA is left"), seen(Health.UNTRIED)), "no CA is left"),
        (
            made(report(Strength.PLAINTEXT, detail="no policy"), seen(Health.FAILING, Failure("nothing listens", ()))),
            "nothing listens (plaintext: no policy)",
        ),
    ],
)
def test_the_words_of_a_line_say_what_happened_and_where(shown: Line, words: str) -> None:
    assert shown.words == words


def test_a_handshake_that_succeeds_does_not_hide_requests_that_fail() -> None:
    shown = line(msgspec.structs.replace(report(), observed=seen(Health.WORKING)), recent=(4.0, 4.0))
    assert (shown.state, shown.words) == (LineState.VERIFIED, "its own CA, for a.example; 100% of requests fail")
    assert shown.report.success == "handshake" and report(Strength.PLAINTEXT).success == "connection"


def test_the_first_certificate_to_expire_is_shown() -> None:
    assert made(report(), seen(Health.WORKING)).certificate == LEAF
    assert made(report()).certificate is None


HANDSHAKE = msgspec.structs.replace(WRONG_NAME, handshake=True)
CLOSED = Failure("nothing listens", ("10.0.0.1:8443",))


@pytest.mark.parametrize(
    "strength, outside, failures, words",
    [
        (Strength.VERIFIED, None, (), "not seen yet"),
        (Strength.VERIFIED, None, (CLOSED,), "not seen yet"),
        (Strength.VERIFIED, None, (HANDSHAKE,), "none accepted"),
        (Strength.VERIFIED, None, (CLOSED, HANDSHAKE), "none accepted"),
        (Strength.PLAINTEXT, None, (CLOSED,), "none: plaintext"),
        (Strength.VERIFIED, Protocol.TCP, (), "not visible to the gateway"),
    ],
)
def test_a_certificate_that_was_refused_is_not_called_unseen(
    strength: Strength, outside: Protocol | None, failures: tuple[Failure, ...], words: str
) -> None:
    happened = seen(Health.FAILING if failures else Health.UNTRIED, *failures)
    shown = made(report(strength, outside=outside), msgspec.structs.replace(happened, certificates=()))
    assert shown.no_certificate == words
    assert LineBundle("", "", shown.state, (shown, shown)).no_certificate == words


def test_a_hop_that_fails_closed_shows_why_there_is_no_certificate() -> None:
    assert made(report(refused=True), seen(Health.UNTRIED)).no_certificate == "none: no connection is made"


def test_a_port_keeps_its_unique_id() -> None:
    ids = {made(report(strength, refused=closed)).id for strength in Strength for closed in (False, True)}
    assert len(ids) == 1
    assert made(report(outside=Protocol.PASSTHROUGH)).id not in ids, "another protocol's"
    assert made(report(name="shop/other")).id not in ids


def many(count: int, namespaces: int = 4, failing: int = 0) -> list[Line]:
    lines = [
        made(
            report(name=f"n{number % namespaces}/s{number}"),
            seen(Health.FAILING, WRONG_NAME) if number < failing else seen(Health.WORKING),
        )
        for number in range(count)
    ]
    return sorted(lines, key=lambda drawn: drawn.order)


def test_few_lines_are_all_shown_the_worst_first() -> None:
    choice = choose(many(SINGLE, failing=3), Filter())
    assert [row.state for row in choice.rows[:4]] == [LineState.FAILING] * 3 + [LineState.VERIFIED]
    assert len(choice.rows) == SINGLE and choice.pages == 1 and not any(isinstance(row, LineBundle) for row in choice.rows)


def test_failing_lines_are_shown_and_the_others_bundled_by_namespace() -> None:
    choice = choose(many(5000, failing=7), Filter())
    assert [row.state for row in choice.rows[:7]] == [LineState.FAILING] * 7
    bundles = [row for row in choice.rows if isinstance(row, LineBundle)]
    assert {row.namespace for row in bundles} == {"n0", "n1", "n2", "n3"}
    assert sum(len(row.lines) for row in bundles) == 4993
    assert choice.found == choice.total == 5000
    assert dict(choice.states)[LineState.FAILING] == 7


@pytest.mark.parametrize("namespaces", [1, 500, 5000])
@pytest.mark.parametrize("failing", [0, 1, 5000])
def test_the_picture_of_any_number_of_hops_has_few_rows_and_counts_all(namespaces: int, failing: int) -> None:
    choice = choose(many(5000, namespaces, failing), Filter())
    assert len(choice.rows) <= SINGLE + BUNDLES
    shown = [bundled.id for row in choice.rows for bundled in (row.lines if isinstance(row, LineBundle) else (row,))]
    assert len(shown) == len(set(shown)) == 5000


def test_namespaces_for_which_there_is_no_room_are_one_bundle_of_their_gateway() -> None:
    bundles = [row for row in choose(many(5000, namespaces=500), Filter()).rows if isinstance(row, LineBundle)]
    assert {row.gateway for row in bundles} == {"edge/web"}
    (rest,) = (row for row in bundles if not row.namespace)
    assert rest.namespaces == 500 - (len(bundles) - 1)


def test_pages_show_every_line_once() -> None:
    lines = many(101, failing=2)
    pages = [choose(lines, Filter(page=number)).rows for number in (1, 2, 3)]
    assert [row for rows in pages for row in rows] == lines
    assert choose(lines, Filter(page=999)).page == 3, "what is beyond the end is the end"


@pytest.mark.parametrize(
    "filter, services",
    [
        (Filter(text="S1"), {"n1/s1", "n2/s10", "n3/s11"}),
        (Filter(text="n3 s1"), {"n3/s11"}),
        (Filter(text="old.example"), {"n0/s0"}),
        (Filter(text="httproute n2"), {"n2/s2", "n2/s6", "n2/s10"}),
        (Filter(namespace="n0"), {"n0/s0", "n0/s4", "n0/s8"}),
        (Filter(state=LineState.FAILING), {"n0/s0"}),
        (Filter(namespace="n1", state=LineState.FAILING), set()),
        (Filter(gateway="edge/other"), set()),
    ],
)
def test_lines_are_found_by_text_namespace_gateway_and_state(filter: Filter, services: set[str]) -> None:
    choice = choose(many(12, failing=1), filter)
    assert {row.report.backend.path for row in choice.rows if isinstance(row, Line)} == services
    assert choice.total == 12
