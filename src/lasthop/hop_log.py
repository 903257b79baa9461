"""Logs what an edit changed on the way to backends, once it is in force: `shop/api:443 is now verified ...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from lasthop.outputs.audit.hops import HopReport, hop_report
from lasthop.plan.upstream import Hop
from lasthop.store.graph import Graph

SHOWN: Final = 10
"""Backends that are named for one edit."""


class HopLog:
    def __init__(self, log: Any) -> None:
        self._log = log
        self._known: dict[Hop, HopReport] = {}
        self._changed: dict[Hop, None] = {}

    def changed(self, hops: Iterable[Hop]) -> None:
        """Takes hops whose clusters have changed, or are gone."""
        self._changed.update(dict.fromkeys(hops))

    @property
    def waiting(self) -> bool:
        return bool(self._changed)

    def tell(self, g: Graph, exists: Callable[[Hop], bool], *, first: bool) -> None:
        """Logs what has become of them. `first`: one line for all of them, because nothing was known before."""
        lines: dict[str, dict[str, str]] = {}
        for hop in self._changed:
            before = self._known.pop(hop, None)
            now = hop_report(g, hop)[0] if exists(hop) else None
            if now is not None:
                self._known[hop] = now
            if said := _said(before, now):
                lines.setdefault(said, {"gateway": hop.gateway.path})
        self._changed = {}
        if first:
            return
        for said, fields in list(lines.items())[:SHOWN]:
            self._log.info(said, **fields)
        if len(lines) > SHOWN:
            self._log.info(f"and {len(lines) - SHOWN} more backends; see: lasthop audit")

    def summary(self) -> str:
        """Returns `3 must be verified, 1 plaintext`: what is asked for, one for each Gateway and port."""
        known = {(report.gateway, report.address): report.manner for report in self._known.values()}
        counts = Counter(manner.asked for manner in known.values())
        return ", ".join(f"{count} {manner}" for manner, count in sorted(counts.items()))


def _said(before: HopReport | None, now: HopReport | None) -> str:
    if now is None:
        return f"{before.address} is no longer used by any route" if before else ""
    if before and (before.manner, before.detail) == (now.manner, now.detail):
        return ""
    was = f" (was {before.manner})" if before and before.manner != now.manner else ""
    return f"{now.address} is now {now.manner}{was}: {now.detail}"
