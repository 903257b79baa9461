"""Compares two states of the same objects: new and fixed findings, and hops with changed verification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.findings.root_causes import RootCause
from lasthop.engine.plan.finding import Severity
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.plan.verification_change import SAME, ChangeKind, Subject, VerificationChange
from lasthop.engine.plan.verification_change import compare as compare_verification

GatewayPort = tuple[Key, Key, int]
"""Gateway, backend and port. One policy decides for all its protocols."""
Best = Callable[[Key, int], HopVerification | None]
"""Returns the strongest known verification of a backend's port."""
IN_WORDS = (Subject.STRENGTH, Subject.REFUSAL)
"""Facts that `HopChange.before` and `after` already contain."""


class NotCompared(msgspec.Struct, frozen=True):
    """Input that could not be read or computed, so that its hops cannot be compared."""

    description: str
    digest: str = ""
    """Digest of the text; empty if not known. An equal text in both states makes no difference."""


class ComparedState(msgspec.Struct, frozen=True):
    where: str
    root_causes: tuple[RootCause, ...]
    hops: tuple[HopReport, ...]
    verified: Mapping[GatewayPort, HopVerification]
    """The hops that policies may apply to."""
    unknown: tuple[NotCompared, ...] = ()


class HopChange(msgspec.Struct, frozen=True):
    gateway: Key
    backend: Key
    port: int
    before: str
    """Empty if the hop did not exist; `after` is empty if it was removed."""
    after: str
    change: VerificationChange
    file: str = ""
    line: int = 0

    @property
    def weaker(self) -> bool:
        return self.change.weaker

    @property
    def other_trust(self) -> bool:
        return self.change.kind is ChangeKind.OTHER_TRUST

    @property
    def facts(self) -> tuple[str, ...]:
        """Facts that `before` and `after` do not show."""
        return tuple(str(fact) for fact in self.change.facts if fact.subject not in IN_WORDS)


class Comparison(msgspec.Struct, frozen=True):
    where: str
    against: str
    introduced: tuple[RootCause, ...]
    fixed: tuple[RootCause, ...]
    hops: tuple[HopChange, ...]
    not_judged: tuple[str, ...] = ()
    """Input that was not compared, and the reason."""

    @property
    def errors(self) -> int:
        return sum(root.finding.severity is Severity.ERROR for root in self.introduced)

    @property
    def weaker(self) -> int:
        return sum(change.weaker for change in self.hops)

    @property
    def other_trust(self) -> int:
        return sum(change.other_trust for change in self.hops)


def compare(before: ComparedState, after: ComparedState, best: Best = lambda backend, port: None) -> Comparison:
    """Compares two states. Findings are equal if object and message are equal, independent of file and line."""
    old, new = {_identity(root) for root in before.root_causes}, {_identity(root) for root in after.root_causes}
    return Comparison(
        after.where,
        before.where,
        tuple(root for root in after.root_causes if _identity(root) not in old),
        tuple(root for root in before.root_causes if _identity(root) not in new),
        tuple(_changes(before, after, best)),
        tuple(_not_judged(before, after)),
    )


def _not_judged(before: ComparedState, after: ComparedState) -> Iterable[str]:
    for state, other in ((before, after), (after, before)):
        digests = {gap.digest for gap in other.unknown} - {""}
        yield from (f"{gap.description} ({state.where})" for gap in state.unknown if gap.digest not in digests)


def _identity(root: RootCause) -> tuple[object, ...]:
    finding = root.finding
    return finding.severity, finding.object, finding.reason, finding.message if finding.object else finding.reason


def _by_place(hops: Iterable[HopReport]) -> dict[GatewayPort, list[HopReport]]:
    by_place: dict[GatewayPort, list[HopReport]] = {}
    for hop in sorted(hops, key=lambda report: report.order):
        by_place.setdefault(hop.place, []).append(hop)
    return by_place


def _changes(before: ComparedState, after: ComparedState, best: Best) -> Iterable[HopChange]:
    old_hops, new_hops = _by_place(before.hops), _by_place(after.hops)
    for place in sorted(old_hops.keys() | new_hops.keys()):
        old, new = old_hops.get(place, []), new_hops.get(place, [])
        was, now = before.verified.get(place), after.verified.get(place)
        change = compare_verification(was, now, best(*place[1:])) if was and now else SAME
        words = _words(old), _words(new)
        if change.differs or words[0] != words[1]:
            yield HopChange(*place, *words, change, new[0].file if new else "", new[0].line if new else 0)


def _words(hops: list[HopReport]) -> str:
    shown = (", ".join(filter(None, (hop.required, hop.detail))) for hop in hops)
    return "; ".join(dict.fromkeys(shown))
