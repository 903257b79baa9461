"""Compares two states of a hop's verification. `check --against`, the webhook, the record and the log use this one rule.

    before, after                          kind
    both connect, another strength         Weaker or Stronger, by `Strength`
    both connect, the same strength        Weaker: more CAs, names or pins; an older TLS; a waiver that ends later or never; a
                                           removed client certificate, pin or revocation list
                                           OtherTrust: some CAs, names or pins added, others removed
                                           Stronger: the reverse of Weaker
    only before connects                   Closed
    only after connects                    Weaker or OtherTrust than the best state, or than the requirement; otherwise Opened
    both fail closed                       Weaker if less is required; otherwise Same

A hop that opens is compared with its best state, because a gate that refuses verified -> plaintext must also refuse verified
-> closed -> plaintext."""

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
    """The CAs or pins, if the record does not list them."""
    TLS_VERSION = "tls-version"
    REVOCATION = "revocation"
    CLIENT_CERTIFICATE = "client-certificate"
    WAIVER_END = "waiver-end"
    REFUSAL = "refusal"


class ChangeFact(msgspec.Struct, frozen=True):
    subject: Subject
    kind: ChangeKind
    """The effect of this fact alone."""
    added: tuple[str, ...] = ()
    """Text for people; fingerprints are shortened."""
    removed: tuple[str, ...] = ()

    def __str__(self) -> str:
        added, removed = (" and ".join(parts) for parts in (self.added, self.removed))
        if templates := SETS.get((self.subject, self.kind)) or SETS.get((self.subject, None)):
            return ", ".join(template.format(part) for template, part in zip(templates, (added, removed), strict=True) if part)
        if replaced := REPLACED.get(self.subject):
            return replaced.format(added, removed)
        return _one_sided(self.subject, added, removed)


SETS: Final[Mapping[tuple[Subject, ChangeKind | None], tuple[str, str]]] = {
    (Subject.CA, None): ("trusts {}", "no longer trusts {}"),
    (Subject.NAME, None): ("accepts the name {}", "no longer {}"),
    (Subject.PIN, None): ("accepts pin {}", "no longer pin {}"),
    # The first pin beside CAs is a further requirement, and so is the last one.
    (Subject.PIN, ChangeKind.STRONGER): ("requires pin {}", "no longer accepts pin {}"),
    (Subject.PIN, ChangeKind.WEAKER): ("accepts pin {}", "no longer requires pin {}"),
}
"""Texts for added and removed members of sets, by the effect of the change."""
REPLACED: Final = {
    Subject.STRENGTH: "{}, no longer {}",
    Subject.TLS_VERSION: "TLS {}, no longer TLS {}",
    Subject.WAIVER_END: "the waiver ends {}, no longer {}",
}


def _one_sided(subject: Subject, added: str, removed: str) -> str:
    if subject is Subject.TRUST:
        return "has other CAs or pins; the record does not list them"
    if subject is Subject.REVOCATION:
        return f"revocation lists are {'checked' if added else 'no longer checked'}"
    if subject is Subject.REFUSAL:
        return f"fails closed: {added}" if added else f"connects again; it failed closed: {removed}"
    if not added:
        return f"no longer presents the client certificate of {removed}"
    presented = f"presents the client certificate of {added}"
    return f"{presented} instead of that of {removed}" if removed else presented


class VerificationChange(msgspec.Struct, frozen=True):
    kind: ChangeKind
    facts: tuple[ChangeFact, ...] = ()

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
    """Compares two states of one hop. `best` is its strongest known state."""
    if after.refused:
        return _less_required(before, after) if before.refused else VerificationChange(ChangeKind.CLOSED, (_closed(after),))
    if not before.refused:
        return _connected(before, after)
    reference = best if best and best.strength >= before.strength else before
    change = _connected(reference, after)
    kind = change.kind if change.kind in (ChangeKind.WEAKER, ChangeKind.OTHER_TRUST) else ChangeKind.OPENED
    return VerificationChange(kind, (ChangeFact(Subject.REFUSAL, ChangeKind.OPENED, (), (before.refused,)), *change.facts))


def _closed(after: HopVerification) -> ChangeFact:
    return ChangeFact(Subject.REFUSAL, ChangeKind.CLOSED, (after.refused,))


def _less_required(before: HopVerification, after: HopVerification) -> VerificationChange:
    """Compares the requirements of two states that both fail closed, because a later edit may open the hop."""
    if after.strength >= before.strength:
        return SAME
    return VerificationChange(ChangeKind.WEAKER, (_strength(before, after),))


def _described(verification: HopVerification) -> bool:
    """Returns whether there are details of the TLS to compare. TLS that cannot be configured has none."""
    details = verification.basis is not None or verification.trust or verification.refs
    return verification.strength is not Strength.PLAINTEXT and bool(details)


def _connected(before: HopVerification, after: HopVerification) -> VerificationChange:
    facts = list(_facts(before, after)) if _described(before) and _described(after) else []
    if before.strength != after.strength:
        strength = _strength(before, after)
        return VerificationChange(strength.kind, (strength, *facts))
    kinds = {fact.kind for fact in facts}
    order = (ChangeKind.WEAKER, ChangeKind.OTHER_TRUST, ChangeKind.STRONGER)
    return VerificationChange(next((kind for kind in order if kind in kinds), ChangeKind.SAME), tuple(facts))


def _strength(before: HopVerification, after: HopVerification) -> ChangeFact:
    kind = ChangeKind.WEAKER if after.strength < before.strength else ChangeKind.STRONGER
    return ChangeFact(Subject.STRENGTH, kind, (after.strength.words,), (before.strength.words,))


def _facts(before: HopVerification, after: HopVerification) -> Iterator[ChangeFact]:
    """Yields the differences between two connections with TLS. Checks that only one of two strengths makes are part of the
    strength."""
    if before.names and after.names:
        yield from _sets(Subject.NAME, _named(before.names), _named(after.names))
    if before.basis is None or after.basis is None:
        if (before.trust, before.digest) != (after.trust, after.digest):
            yield ChangeFact(Subject.TRUST, ChangeKind.OTHER_TRUST)
        return
    yield from _anchors(before.basis, after.basis)
    yield from _connection(before.basis, after.basis)
    if before.strength == after.strength and before.basis.until != after.basis.until:
        yield _waiver_end(before.basis.until, after.basis.until)


def _waiver_end(before: float | None, after: float | None) -> ChangeFact:
    later = before is not None and (after is None or after > before)
    kind = ChangeKind.WEAKER if later else ChangeKind.STRONGER
    return ChangeFact(Subject.WAIVER_END, kind, (_end(after),), (_end(before),))


def _end(until: float | None) -> str:
    return NO_END if until is None else datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _anchors(before: Basis, after: Basis) -> Iterator[ChangeFact]:
    was, now = _trusted(before), _trusted(after)
    anchored = bool(was and now)
    if anchored:
        yield from _sets(Subject.CA, was, now)
    if before.pins and after.pins:
        # A pinned certificate without CAs is its own anchor and already listed.
        if {pin.partition(":")[2] for pin in set(before.pins) ^ set(after.pins)} - (was.keys() ^ now.keys()):
            yield from _sets(Subject.PIN, *({pin: _pin(pin) for pin in basis.pins} for basis in (before, after)))
    # A pin beside CAs narrows the trust; alone it is the only check.
    elif anchored and after.pins:
        yield ChangeFact(Subject.PIN, ChangeKind.STRONGER, tuple(map(_pin, after.pins)))
    elif anchored and before.pins:
        yield ChangeFact(Subject.PIN, ChangeKind.WEAKER, (), tuple(map(_pin, before.pins)))


def _connection(before: Basis, after: Basis) -> Iterator[ChangeFact]:
    if before.versions != after.versions:
        older = any(now < was for was, now in zip(before.versions, after.versions, strict=True))
        kind = ChangeKind.WEAKER if older else ChangeKind.STRONGER
        yield ChangeFact(Subject.TLS_VERSION, kind, (" to ".join(after.versions),), (" to ".join(before.versions),))
    was, now = (("checked",) if basis.revocation else () for basis in (before, after))
    if was != now:
        yield ChangeFact(Subject.REVOCATION, _gained(was, now), now, was)
    was, now = ((basis.shown,) if basis.shown else () for basis in (before, after))
    # A record of version 0.1.0 has no fingerprint.
    unknown = before.client_certificate == after.client_certificate and not (before.client_sha256 and after.client_sha256)
    if was != now and not unknown:
        yield ChangeFact(Subject.CLIENT_CERTIFICATE, _gained(was, now), now, was)


def _gained(before: tuple[str, ...], after: tuple[str, ...]) -> ChangeKind:
    """Compares two states of an optional setting."""
    if before and after:
        return ChangeKind.SAME
    return ChangeKind.STRONGER if after else ChangeKind.WEAKER


def _trusted(basis: Basis) -> dict[str, str]:
    """Returns the anchors by fingerprint."""
    anchors = {ca.sha256: f"CA {ca}" for ca in basis.cas}
    return {**anchors, SYSTEM_CAS: SYSTEM_CAS} if basis.system else anchors


def _named(names: Collection[str]) -> dict[str, str]:
    return {name: name for name in names}


def _pin(pin: str) -> str:
    kind, _, digest = pin.partition(":")
    return f"{digest[:FINGERPRINT]}\u2026 of a {kind}"


def _sets(subject: Subject, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[ChangeFact]:
    """Compares two sets in which any one member suffices, so that a larger set accepts more."""
    added = tuple(words for member, words in after.items() if member not in before)
    removed = tuple(words for member, words in before.items() if member not in after)
    if added or removed:
        kind = ChangeKind.OTHER_TRUST if added and removed else ChangeKind.WEAKER if added else ChangeKind.STRONGER
        yield ChangeFact(subject, kind, added, removed)
