"""Logs the effects of an edit on backends once it is in force: `shop/api:443 must now be verified: ...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from lasthop.engine.memory.record import Entry
from lasthop.engine.outputs.audit.hops import HopReport, hop_report
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.plan.verdict import HopVerification, Verdict
from lasthop.engine.plan.verification_change import SAME, Subject, compare
from lasthop.engine.resolve.hops.verdict import verdict
from lasthop.engine.store.graph import Graph

SHOWN: Final = 10
"""Backends that are named for one edit."""
SHOWN_ANYWAY: Final = (Subject.STRENGTH, Subject.REFUSAL, Subject.NAME)


class _HopState(NamedTuple):
    report: HopReport
    verified: HopVerification | None
    """None: policies do not apply to the protocol, or it could not be computed."""


class HopLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._states: dict[Hop, _HopState] = {}
        self._changed: dict[Hop, None] = {}
        self._causes: dict[tuple[str, str], dict[str, str]] = {}
        """By Gateway and address."""

    def changed(self, hops: Iterable[Hop]) -> None:
        """Records hops whose clusters have changed or were removed."""
        self._changed.update(dict.fromkeys(hops))

    def recorded(self, entries: Iterable[Entry]) -> None:
        """Records new entries of the record of changes, which contain the edit and its author."""
        for entry in entries:
            fields = {name: value for name, value in (("because", entry.because), ("by", entry.by)) if value}
            self._causes |= {(gateway, entry.address): fields for gateway in entry.gateways}

    @property
    def waiting(self) -> bool:
        return bool(self._changed)

    def tell(self, g: Graph, exists: Callable[[Hop], bool], *, first: bool) -> None:
        """Logs the changes of the recorded hops. `first`: logs nothing, because there is no earlier state to compare with."""
        lines: dict[str, dict[str, str]] = {}
        gateways: dict[str, dict[str, None]] = {}
        for hop in self._changed:
            before = self._states.pop(hop, None)
            now = _HopState(hop_report(g, hop)[0], _verified(g, hop)) if exists(hop) else None
            if now is not None:
                self._states[hop] = now
            state = now or before
            if state and (text := _change_text(before, now)):
                causes = self._causes.get((hop.gateway.path, state.report.address), {})
                lines.setdefault(text, causes)
                gateways.setdefault(text, {})[hop.gateway.path] = None
        self._changed, self._causes = {}, {}
        if first:
            return
        for text, fields in list(lines.items())[:SHOWN]:
            self._log.info(text, gateway=", ".join(gateways[text]), **fields)
        if len(lines) > SHOWN:
            self._log.info(f"and {len(lines) - SHOWN} more backends; see: lasthop audit")

    def summary(self) -> str:
        """Returns the number of backends per requirement, one for each Gateway and port: `3 must be verified, 1 plaintext`."""
        requirements = {(report.gateway, report.address): report.required for report, _ in self._states.values()}
        return ", ".join(f"{count} {required}" for required, count in sorted(Counter(requirements.values()).items()))


def _verified(g: Graph, hop: Hop) -> HopVerification | None:
    result = verdict.attempt(g, *hop) if hop.protocol.policed else None
    return result.verification if isinstance(result, Verdict) else None


def _change_text(before: _HopState | None, now: _HopState | None) -> str:
    if now is None:
        return f"{before.report.address} is no longer used by any route" if before else ""
    report, was = now.report, before.report if before else None
    change = compare(before.verified, now.verified) if before and before.verified and now.verified else SAME
    facts = "; ".join(str(fact) for fact in change.facts if fact.subject not in SHOWN_ANYWAY)
    if was and (was.manner, was.detail) == (report.manner, report.detail):
        return f"{report.address} {_must(report)} as before, but now: {facts}" if facts else ""
    old = f" (was {was.manner})" if was and was.manner != report.manner else ""
    return f"{report.address} {_must(report, 'now ')}{old}: {report.detail}{f'; {facts}' if facts else ''}"


def _must(report: HopReport, now: str = "") -> str:
    """Returns `must now be verified`, because an edit requires it and no handshake has shown it yet."""
    return f"must {now}be verified" if report.in_effect is Strength.VERIFIED else f"is {now}{report.manner}"
