"""Compares how a hop was verified with how it is: the one rule of `check --against`, the webhook, the record and the log.

    before, after                          kind
    both connect, another strength         Weaker or Stronger, by `Strength`
    both connect, the same strength        Weaker: more CAs, names or pins; an older TLS; a waiver that ends later or never; no
                                           client certificate, pins or revocation lists any more
                                           OtherTrust: some CAs, names or pins came, and others went
                                           Stronger: the reverse of Weaker
    only before connects                   Closed
    only after connects                    Weaker or OtherTrust than at best, or than what was asked for; otherwise Opened
    both fail closed                       Weaker if less is asked for; otherwise Same

A hop that opens is compared with how it was at best, because a gate that refuses verified -> plaintext must also refuse
verified -> closed -> plaintext.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import msgspec

from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import FINGERPRINT
from lasthop.engine.plan.verdict import Basis, HopVerification


class ChangeKind(StrEnum):
    SAME = "Same"
    STRONGER = "Stronger"
    WEAKER = "Weaker"
    OTHER_TRUST = "OtherTrust"
    OPENED = "Opened"
    CLOSED = "Closed"


class Subject(StrEnum):
    STRENGTH = "strength"
    CA = "ca"
    NAME = "name"
    PIN = "pin"
    TRUST = "trust"
    """The CAs or pins, where it was not recorded which."""
    TLS_VERSION = "tls-version"
    REVOCATION = "revocation"
    CLIENT_CERTIFICATE = "client-certificate"
    WAIVER_END = "waiver-end"
    REFUSAL = "refusal"


class Fact(msgspec.Struct, frozen=True):
    subject: Subject
    kind: ChangeKind
    """What it amounts to by itself."""
    added: tuple[str, ...] = ()
    """As people read it; a fingerprint is shortened."""
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        added, removed = (" and ".join(each) for each in (self.added, self.removed))
        if both := SETS.get(self.subject):
            return ", ".join(text.format(part) for text, part in zip(both, (added, removed), strict=True) if part)
        if replaced := REPLACED.get(self.subject):
            return replaced.format(added, removed)
        return _one_sided(self.subject, added, removed)


SETS: Final = {
    Subject.CA: ("trusts {}", "no longer trusts {}"),
    Subject.NAME: ("accepts the name {}", "no longer {}"),
    Subject.PIN: ("accepts pin {}", "no longer pin {}"),
}
"""What is added to them and removed from them, in words."""
REPLACED: Final = {
    Subject.STRENGTH: "{}, no longer {}",
    Subject.TLS_VERSION: "TLS {}, no longer TLS {}",
    Subject.WAIVER_END: "the waiver ends {}, no longer {}",
}


def _one_sided(subject: Subject, added: str, removed: str) -> str:
    if subject is Subject.TRUST:
        return "has other CAs or pins; which came and went was not recorded"
    if subject is Subject.REVOCATION:
        return f"revocation lists are {'checked' if added else 'no longer checked'}"
    if subject is Subject.REFUSAL:
        return f"fails closed: {added}" if added else f"connects again; it failed closed: {removed}"
    shown = f"shows the client certificate of {added}" if added else "shows no client certificate"
    return f"{shown}, no longer that of {removed}" if removed else shown


class VerificationChange(msgspec.Struct, frozen=True):
    kind: ChangeKind
    facts: tuple[Fact, ...] = ()

    @property
    def weaker(self) -> bool:
        return self.kind is ChangeKind.WEAKER

    @property
    def differs(self) -> bool:
        return bool(self.facts) or self.kind is not ChangeKind.SAME

    def __str__(self) -> str:
        return "; ".join(map(str, self.facts))


SAME: Final = VerificationChange(ChangeKind.SAME)
SYSTEM_CAS: Final = "the system's CAs"
NO_END: Final = "never"


def compare(before: HopVerification, after: HopVerification, best: HopVerification | None = None) -> VerificationChange:
    """Compares two states of one hop. `best` is the strongest that it has been, if that is known."""
    if after.refused:
        return _less_asked(before, after) if before.refused else VerificationChange(ChangeKind.CLOSED, (_closed(after),))
    if not before.refused:
        return _connected(before, after)
    known = best if best and best.strength >= before.strength else before
    found = _connected(known, after)
    kind = found.kind if found.kind in (ChangeKind.WEAKER, ChangeKind.OTHER_TRUST) else ChangeKind.OPENED
    return VerificationChange(kind, (Fact(Subject.REFUSAL, ChangeKind.OPENED, (), (before.refused,)), *found.facts))


def _closed(after: HopVerification) -> Fact:
    return Fact(Subject.REFUSAL, ChangeKind.CLOSED, (after.refused,))


def _less_asked(before: HopVerification, after: HopVerification) -> VerificationChange:
    """Compares what is asked for while nothing gets through: whatever closes the hop may end in a later edit."""
    if after.strength >= before.strength:
        return SAME
    return VerificationChange(ChangeKind.WEAKER, (_strength(before, after),))


def _described(found: HopVerification) -> bool:
    """Whether there is TLS, and more than its strength is known: what cannot be made has no CAs to compare."""
    return found.strength is not Strength.PLAINTEXT and bool(found.basis is not None or found.trust or found.refs)


def _connected(before: HopVerification, after: HopVerification) -> VerificationChange:
    facts = list(_facts(before, after)) if _described(before) and _described(after) else []
    if before.strength != after.strength:
        strength = _strength(before, after)
        return VerificationChange(strength.kind, (strength, *facts))
    found = {fact.kind for fact in facts}
    order = (ChangeKind.WEAKER, ChangeKind.OTHER_TRUST, ChangeKind.STRONGER)
    return VerificationChange(next((kind for kind in order if kind in found), ChangeKind.SAME), tuple(facts))


def _strength(before: HopVerification, after: HopVerification) -> Fact:
    kind = ChangeKind.WEAKER if after.strength < before.strength else ChangeKind.STRONGER
    return Fact(Subject.STRENGTH, kind, (after.strength.words,), (before.strength.words,))


def _facts(before: HopVerification, after: HopVerification) -> Iterator[Fact]:
    """Yields what differs between two connections with TLS. What only one of two strengths checks is part of the strength."""
    if before.names and after.names:
        yield from _sets(Subject.NAME, _named(before.names), _named(after.names))
    if before.basis is None or after.basis is None:
        if (before.trust, before.digest) != (after.trust, after.digest):
            yield Fact(Subject.TRUST, ChangeKind.OTHER_TRUST)
        return
    yield from _anchors(before.basis, after.basis)
    yield from _connection(before.basis, after.basis)
    if before.strength == after.strength and before.basis.until != after.basis.until:
        was, now = before.basis.until, after.basis.until
        later = was is not None and (now is None or now > was)
        yield Fact(Subject.WAIVER_END, ChangeKind.WEAKER if later else ChangeKind.STRONGER, (_end(now),), (_end(was),))


def _end(until: float | None) -> str:
    return NO_END if until is None else datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _anchors(before: Basis, after: Basis) -> Iterator[Fact]:
    was, now = _trusted(before), _trusted(after)
    anchored = bool(was and now)
    if anchored:
        yield from _sets(Subject.CA, was, now)
    if before.pins and after.pins:
        # A pinned certificate without CAs is its own anchor, so that it is named already.
        if {pin.partition(":")[2] for pin in set(before.pins) ^ set(after.pins)} - (was.keys() ^ now.keys()):
            yield from _sets(Subject.PIN, *({pin: _pin(pin) for pin in each.pins} for each in (before, after)))
    # A pin beside CAs narrows what they vouch for; alone it is all that is checked.
    elif anchored and after.pins:
        yield Fact(Subject.PIN, ChangeKind.STRONGER, tuple(map(_pin, after.pins)))
    elif anchored and before.pins:
        yield Fact(Subject.PIN, ChangeKind.WEAKER, (), tuple(map(_pin, before.pins)))


def _connection(before: Basis, after: Basis) -> Iterator[Fact]:
    if before.versions != after.versions:
        older = any(now < was for was, now in zip(before.versions, after.versions, strict=True))
        kind = ChangeKind.WEAKER if older else ChangeKind.STRONGER
        yield Fact(Subject.TLS_VERSION, kind, (" to ".join(after.versions),), (" to ".join(before.versions),))
    was, now = (("checked",) if each.revocation else () for each in (before, after))
    if was != now:
        yield Fact(Subject.REVOCATION, _gained(was, now), now, was)
    was, now = ((each.client_certificate,) if each.client_certificate else () for each in (before, after))
    if was != now:
        yield Fact(Subject.CLIENT_CERTIFICATE, _gained(was, now), now, was)


def _gained(before: tuple[str, ...], after: tuple[str, ...]) -> ChangeKind:
    """Compares something that is there or not."""
    if before and after:
        return ChangeKind.SAME
    return ChangeKind.STRONGER if after else ChangeKind.WEAKER


def _trusted(basis: Basis) -> dict[str, str]:
    """Returns the anchors by fingerprint."""
    found = {ca.sha256: f"CA {ca}" for ca in basis.cas}
    return {**found, SYSTEM_CAS: SYSTEM_CAS} if basis.system else found


def _named(names: Collection[str]) -> dict[str, str]:
    return {name: name for name in names}


def _pin(pin: str) -> str:
    of, _, digest = pin.partition(":")
    return f"{digest[:FINGERPRINT]}\u2026 of a {of}"


def _sets(subject: Subject, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Fact]:
    """Compares two sets of which any one member suffices: a larger one accepts more."""
    added = tuple(words for each, words in after.items() if each not in before)
    removed = tuple(words for each, words in before.items() if each not in after)
    if added or removed:
        kind = ChangeKind.OTHER_TRUST if added and removed else ChangeKind.WEAKER if added else ChangeKind.STRONGER
        yield Fact(subject, kind, added, removed)
