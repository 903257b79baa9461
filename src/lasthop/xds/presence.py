"""What the proxies of each Gateway have confirmed: those that are connected here, and those that other replicas tell of.

Pure: time comes in as an argument. What a proxy had counts on for a moment after it has gone, because a proxy whose controller
has died is connected to the next one within that time, and a status that flips would tell of a failure that nobody had.
Reports of other replicas are whole states, not events: one that is lost is made good by the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from lasthop.api.meta import Key

LINGER: Final = 5.0
"""Seconds for which a proxy that has gone still counts; Envoy tries again after half a second, then after one, two, …"""
EXPIRES: Final = 10.0
"""Seconds for which a replica's report counts; it is repeated every three."""

Versions = dict[str, dict[str, str]]
"""By type and name."""


class Standing(msgspec.Struct, frozen=True):
    """How a Gateway's proxies stand at one replica."""

    connected: bool = False
    versions: Versions = {}
    """Of the listeners and route tables that they have confirmed."""
    problem: str = ""
    refused: tuple[tuple[str, str, str, Key | None, str], ...] = ()
    """(type, part, hash, owner, what Envoy said)."""


Report = dict[str, Standing]
"""By Gateway; those without a proxy at that replica are left out."""


class _Former(msgspec.Struct, frozen=True):
    versions: Versions
    until: float


class _Told(msgspec.Struct, frozen=True):
    report: Report
    until: float


class Presence:
    def __init__(self) -> None:
        self._here: dict[str, Versions] = {}
        self._elsewhere: dict[str, _Told] = {}
        """By replica."""
        self._former: dict[tuple[str, str], _Former] = {}
        """By replica (empty: this one) and Gateway."""

    def __repr__(self) -> str:
        return f"<Presence here: {sorted(self._here)}, elsewhere: {sorted(self._elsewhere)}, former: {sorted(self._former)}>"

    # --- what happens here -------------------------------------------------------------------------------------------

    def arrived(self, gateway: str) -> None:
        self._here.setdefault(gateway, {})

    def confirmed(
        self, gateway: str, type_url: str, versions: Mapping[str, str], removed: Collection[str] = frozenset()
    ) -> bool:
        """Whether that is news."""
        known = self._here.setdefault(gateway, {}).setdefault(type_url, {})
        news = any(known.get(name) != version for name, version in versions.items()) or not known.keys().isdisjoint(removed)
        known.update(versions)
        for name in removed:
            known.pop(name, None)
        return news

    def left(self, gateway: str, now: float) -> None:
        """The last one has gone."""
        if gateway in self._here:
            self._former["", gateway] = _Former(self._here.pop(gateway), now + LINGER)

    def gone(self, gateway: str) -> None:
        """The Gateway itself is no more."""
        self._here.pop(gateway, None)
        for key in [key for key in self._former if key[1] == gateway]:
            del self._former[key]

    def here(self, gateway: str) -> Versions | None:
        """None if there is none."""
        return self._here.get(gateway)

    # --- what others tell --------------------------------------------------------------------------------------------

    def heard(self, replica: str, report: Report, now: float) -> set[str]:
        """Takes the place of what that replica has told before. The Gateways that this is news about."""
        before = self._elsewhere.get(replica)
        old = before.report if before else {}
        for gateway, standing in old.items():
            if standing.connected and not report.get(gateway, Standing()).connected:
                self._former[replica, gateway] = _Former(standing.versions, now + LINGER)
        self._elsewhere[replica] = _Told(report, now + EXPIRES)
        return {gateway for gateway in old.keys() | report.keys() if old.get(gateway) != report.get(gateway)}

    def forget_others(self) -> set[str]:
        concerned = {gateway for told in self._elsewhere.values() for gateway in told.report}
        concerned |= {gateway for replica, gateway in self._former if replica}
        self._elsewhere.clear()
        self._former = {key: former for key, former in self._former.items() if not key[0]}
        return concerned

    def elsewhere(self, gateway: str) -> Iterator[Standing]:
        return (told.report[gateway] for told in self._elsewhere.values() if gateway in told.report)

    @property
    def replicas(self) -> list[str]:
        """Those that report."""
        return sorted(self._elsewhere)

    # --- what follows ------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> set[str]:
        """The Gateways about which less is known than before."""
        former = [key for key, entry in self._former.items() if entry.until <= now]
        silent = [replica for replica, told in self._elsewhere.items() if told.until <= now]
        concerned = {gateway for _, gateway in former}
        for key in former:
            del self._former[key]
        for replica in silent:
            concerned |= self._elsewhere.pop(replica).report.keys()
        return concerned

    def connected(self, gateway: str) -> bool:
        return any(True for _ in self._known(gateway))

    def holds(self, gateway: str, type_url: str, name: str, version: str | None = None) -> bool:
        """Whether some proxy has confirmed that resource, in this version or in any."""
        found = (versions.get(type_url, {}).get(name) for versions in self._known(gateway))
        return any(held == version if version is not None else held is not None for held in found)

    def _known(self, gateway: str) -> Iterator[Versions]:
        if (here := self._here.get(gateway)) is not None:
            yield here
        for standing in self.elsewhere(gateway):
            if standing.connected:
                yield standing.versions
        for (_, former), entry in self._former.items():
            if former == gateway:
                yield entry.versions
