"""Compares two states of the same objects: what is wrong only now, what no longer is, which hops are verified otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lasthop.api.meta import Key
from lasthop.outputs.audit.hops import HopReport, Manner
from lasthop.outputs.findings.root_causes import Mistake
from lasthop.plan.finding import Severity

STRENGTH: Final = {"Plaintext": 0, "All": 2, "Names": 3, "Expiry": 4, "PinnedOnly": 5, "Verified": 6}
"""By `HopReport.mode`. What fails closed lets nothing through, passthrough is the client's own TLS: neither is compared."""
UNFULFILLED: Final = 1
"""Of what has failed closed because of a policy: who deletes a policy that cannot be fulfilled has plaintext, not the TLS that
it asked for."""


class State(msgspec.Struct, frozen=True):
    where: str
    mistakes: tuple[Mistake, ...]
    hops: tuple[HopReport, ...]


class HopChange(msgspec.Struct, frozen=True):
    gateway: Key
    backend: Key
    port: int
    before: str
    """Empty: there was no such hop; of `after`: there is none any more."""
    after: str
    weaker: bool
    file: str = ""
    line: int = 0


class Comparison(msgspec.Struct, frozen=True):
    where: str
    against: str
    introduced: tuple[Mistake, ...]
    fixed: tuple[Mistake, ...]
    hops: tuple[HopChange, ...]

    @property
    def errors(self) -> int:
        return sum(each.finding.severity is Severity.ERROR for each in self.introduced)

    @property
    def weaker(self) -> int:
        return sum(change.weaker for change in self.hops)


def compare(before: State, after: State) -> Comparison:
    """Findings are the same if they say the same of the same object, wherever it is written now."""
    known, now = {_identity(each) for each in before.mistakes}, {_identity(each) for each in after.mistakes}
    return Comparison(
        after.where,
        before.where,
        tuple(each for each in after.mistakes if _identity(each) not in known),
        tuple(each for each in before.mistakes if _identity(each) not in now),
        tuple(_changes(_by_place(before.hops), _by_place(after.hops))),
    )


def _identity(mistake: Mistake) -> tuple[object, ...]:
    finding = mistake.finding
    return finding.severity, finding.object, finding.reason, finding.message if finding.object else finding.reason


Place = tuple[Key, Key, int]


def _by_place(hops: Iterable[HopReport]) -> dict[Place, list[HopReport]]:
    found: dict[Place, list[HopReport]] = {}
    for hop in sorted(hops, key=lambda each: each.order):
        found.setdefault((hop.gateway, hop.backend, hop.port), []).append(hop)
    return found


def _changes(before: dict[Place, list[HopReport]], after: dict[Place, list[HopReport]]) -> Iterable[HopChange]:
    for place in sorted(before.keys() | after.keys()):
        old, new = before.get(place, []), after.get(place, [])
        was, now = _words(old), _words(new)
        if was != now:
            first = new[0] if new else old[0]
            weakest = min((s for each in new if (s := _strength(each)) is not None), default=None)
            strongest = min((s for each in old if (s := _asked_for(each)) is not None), default=None)
            weaker = weakest is not None and strongest is not None and weakest < strongest
            yield HopChange(*place, was, now, weaker, first.file if new else "", first.line if new else 0)


def _words(hops: list[HopReport]) -> str:
    shown = (", ".join(filter(None, (each.manner.asked, each.detail))) for each in hops)
    return "; ".join(dict.fromkeys(shown))


def _strength(hop: HopReport) -> int | None:
    return STRENGTH.get(hop.mode) if hop.manner not in (Manner.FAILING, Manner.PASSTHROUGH, Manner.UDP) else None


def _asked_for(hop: HopReport) -> int | None:
    """Returns how strong a hop was; of one that failed closed, that it was not plaintext where a policy asked for TLS."""
    return UNFULFILLED if hop.manner is Manner.FAILING and hop.policy else _strength(hop)
