"""The comparison that check, webhook, record and log share, as tables over values: every pair of strengths, every part."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import TrustedCA
from lasthop.engine.plan.verdict import Basis, HopVerification, weakest
from lasthop.engine.plan.verification_change import ChangeKind, Subject, compare

SAME, STRONGER, WEAKER, OTHER, OPENED, CLOSED = ChangeKind
A, B, C = (TrustedCA(f"CA {name}", name * 64) for name in "abc")
KEY, KEY2 = f"key:{'1' * 64}", f"key:{'2' * 64}"
POLICY = Key("BackendTLSPolicy", "a", "p")
ORDER = (
    Strength.PLAINTEXT,
    Strength.TLS,
    Strength.WAIVED_ALL,
    Strength.WAIVED_NAMES,
    Strength.WAIVED_EXPIRY,
    Strength.PINNED_ONLY,
    Strength.VERIFIED,
)
"""The design's order, the weakest first."""
PAIRS = list(itertools.product(ORDER, ORDER))


def of(
    strength: Strength = Strength.VERIFIED, *, names: tuple[str, ...] = ("a",), refused: str = "", **basis: Any
) -> HopVerification:
    """Makes a hop with one CA, unless others are given; plaintext has no further fields."""
    if strength is Strength.PLAINTEXT:
        return HopVerification(strength, refused=refused)
    return HopVerification(strength, POLICY, "CA", names, refused=refused, basis=Basis(**{"cas": (A,), **basis}))


def shown(digit: str) -> HopVerification:
    return of(client_certificate="Secret a/x", client_sha256=digit * 64)


def test_the_table_has_every_strength() -> None:
    assert tuple(Strength) == ORDER


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_lower_strength_is_weaker_and_a_higher_one_is_stronger(before: Strength, after: Strength) -> None:
    rank = ORDER.index(after) - ORDER.index(before)
    expected = WEAKER if rank < 0 else STRONGER if rank > 0 else SAME
    change = compare(of(before), of(after))
    assert change.kind is expected
    assert [fact.subject for fact in change.facts] == ([Subject.STRENGTH] if rank else [])


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_closing_is_never_weaker_and_opening_is_if_less_was_required(before: Strength, after: Strength) -> None:
    closed = of(before, refused="no CA")
    assert compare(of(after), closed).kind is CLOSED
    lower = ORDER.index(after) < ORDER.index(before)
    assert compare(closed, of(after)).kind is (WEAKER if lower else OPENED)
    assert compare(closed, of(after, refused="other")).kind is (WEAKER if lower else SAME)


@pytest.mark.parametrize(("best", "after"), PAIRS)
def test_opening_is_compared_with_how_it_was_at_best(best: Strength, after: Strength) -> None:
    """For any states in between: verified -> closed -> plaintext must not pass where verified -> plaintext does not."""
    for between in ORDER:
        strongest = max(best, between, key=ORDER.index)
        expected = WEAKER if ORDER.index(after) < ORDER.index(strongest) else OPENED
        assert compare(of(between, refused="no CA"), of(after), of(best)).kind is expected


def test_opening_with_other_trust_than_at_best_is_other_trust_and_with_more_is_weaker() -> None:
    closed = HopVerification(Strength.VERIFIED, POLICY, refused="no CA")
    for cas, expected in (((A,), OPENED), ((B,), OTHER), ((A, B), WEAKER)):
        assert compare(closed, of(cas=cas), of()).kind is expected, cas
    assert compare(closed, of(cas=(B,))).kind is OPENED, "nothing is known of its CAs"
    assert compare(of(refused="not permitted"), of(cas=(A, B))).kind is WEAKER, "its CAs are known though it is closed"


def test_a_hop_that_connects_is_compared_with_what_it_is_and_not_with_its_best() -> None:
    assert compare(of(Strength.WAIVED_ALL), of(Strength.PINNED_ONLY), of()).kind is STRONGER


PARTS: list[tuple[str, HopVerification, HopVerification, ChangeKind, ChangeKind]] = [
    ("a CA added", of(), of(cas=(A, B)), WEAKER, STRONGER),
    ("a CA replaced", of(), of(cas=(B,)), OTHER, OTHER),
    ("one of two CAs replaced", of(cas=(A, B)), of(cas=(B, C)), OTHER, OTHER),
    ("the order of CAs", of(cas=(A, B)), of(cas=(B, A)), SAME, SAME),
    ("a CA renewed under its name", of(), of(cas=(TrustedCA(A.subject, "f" * 64),)), OTHER, OTHER),
    ("a CA by another name", of(), of(cas=(TrustedCA("x", A.sha256),)), SAME, SAME),
    ("the system's CAs in place of one", of(), of(cas=(), system=True), OTHER, OTHER),
    ("a name added", of(), of(names=("a", "b")), WEAKER, STRONGER),
    ("a name replaced", of(), of(names=("b",)), OTHER, OTHER),
    ("the order of names", of(names=("a", "b")), of(names=("b", "a")), SAME, SAME),
    ("a pin beside a CA removed", of(pins=(KEY,)), of(), WEAKER, STRONGER),
    ("a pin added to pins", of(pins=(KEY,)), of(pins=(KEY, KEY2)), WEAKER, STRONGER),
    ("a pin replaced", of(pins=(KEY,)), of(pins=(KEY2,)), OTHER, OTHER),
    ("the same hash as another kind of pin", of(pins=(KEY,)), of(pins=(f"certificate:{'1' * 64}",)), OTHER, OTHER),
    ("an older lowest TLS", of(versions=("1.2", "1.3")), of(versions=("1.0", "1.3")), WEAKER, STRONGER),
    ("an older highest TLS", of(versions=("1.2", "1.3")), of(versions=("1.2", "1.2")), WEAKER, STRONGER),
    ("older and newer TLS at once", of(versions=("1.2", "1.2")), of(versions=("1.1", "1.3")), WEAKER, WEAKER),
    ("revocation lists no longer checked", of(revocation=True), of(), WEAKER, STRONGER),
    ("a client certificate no longer shown", of(client_certificate="Secret a/x"), of(), WEAKER, STRONGER),
    ("another client certificate", of(client_certificate="Secret a/x"), of(client_certificate="Secret a/y"), SAME, SAME),
    ("a renewed client certificate", shown("1"), shown("2"), SAME, SAME),
    ("a client certificate recorded without fingerprint", of(client_certificate="Secret a/x"), shown("1"), SAME, SAME),
    ("a CA added and another name", of(), of(cas=(A, B), names=("b",)), WEAKER, OTHER),
    ("a CA replaced and a newer TLS", of(), of(cas=(B,), versions=("1.3", "1.3")), OTHER, WEAKER),
    ("a CA added and a newer TLS", of(), of(cas=(A, B), versions=("1.3", "1.3")), WEAKER, WEAKER),
]
UNSHOWN = {
    "a client certificate recorded without fingerprint",
    "the order of CAs",
    "the order of names",
    "a CA by another name",
}


@pytest.mark.parametrize(("what", "before", "after", "forth", "back"), PARTS, ids=[part[0] for part in PARTS])
def test_within_one_strength_more_is_weaker_and_other_is_other_trust(
    what: str, before: HopVerification, after: HopVerification, forth: ChangeKind, back: ChangeKind
) -> None:
    assert compare(before, after).kind is forth
    assert compare(after, before).kind is back
    assert compare(before, after).differs is (what not in UNSHOWN), "all else is shown"
    assert compare(before, before).differs is False


@pytest.mark.parametrize("strength", [s for s in ORDER if s.name.startswith("WAIVED")])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (1.0, 2.0, WEAKER),
        (1.0, None, WEAKER),
        (0.0, None, WEAKER),
        (2.0, 1.0, STRONGER),
        (None, 1.0, STRONGER),
        (1.0, 1.0, SAME),
    ],
)
def test_a_waiver_that_ends_later_or_never_is_weaker(
    strength: Strength, before: float | None, after: float | None, expected: ChangeKind
) -> None:
    assert compare(of(strength, until=before), of(strength, until=after)).kind is expected


def test_pins_alone_accept_more_with_another_pin() -> None:
    one, two = (of(Strength.PINNED_ONLY, names=(), cas=(), pins=pins) for pins in ((KEY,), (KEY, KEY2)))
    assert (compare(one, two).kind, compare(two, one).kind) == (WEAKER, STRONGER)


def test_a_pinned_certificate_that_is_its_own_anchor_is_named_once() -> None:
    def leaf(*cas: TrustedCA) -> HopVerification:
        return of(cas=cas, pins=tuple(f"certificate:{ca.sha256}" for ca in cas))

    change = compare(leaf(A), leaf(A, B))
    assert (change.kind, [fact.subject for fact in change.facts]) == (WEAKER, [Subject.CA])
    assert compare(leaf(A), of(cas=(A,))).kind is WEAKER, "as a CA it may issue others"
    ca_and_pin = of(cas=(B,), pins=(f"certificate:{A.sha256}",))
    assert compare(leaf(A), ca_and_pin).kind is OTHER


def test_added_and_removed_cas_are_named_by_subject_and_fingerprint() -> None:
    change = compare(of(), of(cas=(B,)))
    assert str(change) == f"trusts CA CA b (SHA-256 {'b' * 16}…), no longer trusts CA CA a (SHA-256 {'a' * 16}…)"
    assert str(compare(of(), of(names=("a", "b", "c")))) == "accepts the name b and c"
    assert str(compare(of(versions=("1.2", "1.3")), of(versions=("1.0", "1.3")))) == "TLS 1.0 to 1.3, no longer TLS 1.2 to 1.3"
    assert str(compare(of(), of(cas=(), system=True))).startswith("trusts the system's CAs, no longer trusts CA CA a")
    ends = compare(of(Strength.WAIVED_ALL, until=0.0), of(Strength.WAIVED_ALL))
    assert str(ends) == "the waiver ends never, no longer 1970-01-01 00:00 UTC"
    first, second = "Secret a/x (SHA-256 1111111111111111…)", "Secret a/x (SHA-256 2222222222222222…)"
    assert str(compare(shown("1"), of())) == f"no longer presents the client certificate of {first}"
    assert str(compare(of(), shown("1"))) == f"presents the client certificate of {first}"
    replaced = str(compare(shown("1"), shown("2")))
    assert replaced == f"presents the client certificate of {second} instead of that of {first}"
    assert str(compare(of(revocation=True), of())) == "revocation lists are no longer checked"
    assert str(compare(of(pins=(KEY,)), of())) == f"no longer requires pin {'1' * 16}… of a key"
    assert str(compare(of(), of(pins=(KEY,)))) == f"requires pin {'1' * 16}… of a key"
    assert str(compare(of(), of(refused="no CA"))) == "fails closed: no CA"
    assert str(compare(of(refused="no CA"), of())) == "connects again; it failed closed: no CA"
    assert str(compare(of(), of(Strength.PLAINTEXT))) == "plaintext, no longer verified"


def test_across_strengths_what_both_check_is_still_shown() -> None:
    change = compare(of(), of(Strength.WAIVED_EXPIRY, cas=(A, B), versions=("1.0", "1.3"), until=1.0))
    assert change.kind is WEAKER
    assert [fact.subject for fact in change.facts] == [Subject.STRENGTH, Subject.CA, Subject.TLS_VERSION]
    less = compare(of(pins=(KEY,)), of(Strength.PINNED_ONLY, names=(), cas=(), pins=(KEY,)))
    assert [fact.subject for fact in less.facts] == [Subject.STRENGTH]


@pytest.mark.parametrize(("digest", "expected"), [("d", SAME), ("e", OTHER)])
def test_records_of_an_older_version_are_compared_by_digest(digest: str, expected: ChangeKind) -> None:
    old = HopVerification(Strength.VERIFIED, POLICY, "CA", ("a",), digest="d")
    now = msgspec.structs.replace(of(), digest=digest)
    assert compare(old, now).kind is expected
    assert compare(now, old).kind is expected
    assert compare(old, msgspec.structs.replace(now, names=("a", "b"))).kind is WEAKER
    if expected is OTHER:
        assert "the record does not list them" in str(compare(old, now))


def test_the_weakest_of_several_is_the_one_that_connects_with_least() -> None:
    closed, low, high = of(Strength.PLAINTEXT, refused="x"), of(Strength.PINNED_ONLY), of()
    for changes in itertools.permutations((closed, low, high)):
        assert weakest(changes) is low
    assert weakest([of(versions=("1.3", "1.3")), old := of(versions=("1.2", "1.3"))]) is old
    assert weakest([of(client_certificate="Secret a/x"), bare := of()]) is bare
    acknowledged = msgspec.structs.replace(of(Strength.PLAINTEXT), acknowledged="by all")
    assert weakest([acknowledged, unsaid := of(Strength.PLAINTEXT)]) is unsaid
