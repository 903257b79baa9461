"""Tracks the acknowledgements of each Gateway's proxies, which are connected here or to other replicas.

Time is an argument. A proxy's acknowledgements still count for a moment after it disconnects. A proxy whose controller died
reconnects to the next one within that time, and a flapping status would report a failure that did not happen. Reports of other
replicas are complete states, not events, so the next report replaces a lost one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from lasthop.base.api.meta import Key

LINGER: Final = 5.0
"""Seconds for which a disconnected proxy still counts. Envoy retries after half a second, then after one, two, …"""
EXPIRES: Final = 10.0
"""Seconds for which a replica's report counts; it is repeated every three seconds."""

Versions = dict[str, dict[str, str]]
"""Versions by type and name."""


class GatewayAcks(msgspec.Struct, frozen=True):
    """Acknowledgements and rejections of one Gateway's proxies that are connected to one replica."""

    connected: bool = False
    versions: Versions = {}
    """The acknowledged versions of listeners and route tables."""
    problem: str = ""
    refused: tuple[tuple[str, str, str, Key | None, str], ...] = ()
    """(type, part, hash, owner, Envoy's message)."""


AckReport = dict[Key, GatewayAcks]
"""Acknowledgements by Gateway, without Gateways that have no proxy at that replica."""


class AckTracker:
    def __init__(self) -> None:
        self._here: dict[Key, Versions] = {}
        self._elsewhere: dict[str, tuple[AckReport, float]] = {}
        """The reports by replica, each with the time at which it expires."""
        self._former: dict[tuple[str, Key], tuple[Versions, float]] = {}
        """The versions of disconnected proxies by replica (empty for this one) and Gateway, and the time at which they
        expire."""

    def __repr__(self) -> str:
        return f"<AckTracker here: {sorted(self._here)}, elsewhere: {sorted(self._elsewhere)}, former: {sorted(self._former)}>"

    # --- proxies connected here --------------------------------------------------------------------------------------

    def connected(self, gateway: Key) -> None:
        self._here.setdefault(gateway, {})

    def acked(self, gateway: Key, type_url: str, versions: Mapping[str, str], removed: Collection[str] = frozenset()) -> bool:
        """Records an acknowledgement and returns whether it changes anything."""
        current = self._here.setdefault(gateway, {}).setdefault(type_url, {})
        changed = any(current.get(name) != version for name, version in versions.items()) or not current.keys().isdisjoint(
            removed
        )
        current.update(versions)
        for name in removed:
            current.pop(name, None)
        return changed

    def disconnected(self, gateway: Key, now: float) -> None:
        if gateway in self._here:
            self._former["", gateway] = self._here.pop(gateway), now + LINGER

    def gone(self, gateway: Key) -> None:
        self._here.pop(gateway, None)
        for key in [key for key in self._former if key[1] == gateway]:
            del self._former[key]

    def here(self, gateway: Key) -> Versions | None:
        """Returns the versions that the proxies connected here have acknowledged; None if none is connected."""
        return self._here.get(gateway)

    # --- proxies of other replicas -----------------------------------------------------------------------------------

    def heard(self, replica: str, report: AckReport, now: float) -> set[Key]:
        """Replaces that replica's previous report; returns the Gateways whose acknowledgements changed."""
        previous, _ = self._elsewhere.get(replica, ({}, now))
        for gateway, acks in previous.items():
            if acks.connected and not report.get(gateway, GatewayAcks()).connected:
                self._former[replica, gateway] = acks.versions, now + LINGER
        self._elsewhere[replica] = report, now + EXPIRES
        return {gateway for gateway in previous.keys() | report.keys() if previous.get(gateway) != report.get(gateway)}

    def forget_replicas(self) -> set[Key]:
        """Drops the reports of other replicas; returns the affected Gateways."""
        affected = {gateway for report, _ in self._elsewhere.values() for gateway in report}
        affected |= {gateway for replica, gateway in self._former if replica}
        self._elsewhere.clear()
        self._former = {key: former for key, former in self._former.items() if not key[0]}
        return affected

    def elsewhere(self, gateway: Key) -> Iterator[GatewayAcks]:
        return (report[gateway] for report, _ in self._elsewhere.values() if gateway in report)

    @property
    def replicas(self) -> list[str]:
        return sorted(self._elsewhere)

    # --- all proxies -------------------------------------------------------------------------------------------------

    def expire(self, now: float) -> set[Key]:
        """Drops expired reports and versions; returns the affected Gateways."""
        former = [key for key, (_, until) in self._former.items() if until <= now]
        silent = [replica for replica, (_, until) in self._elsewhere.items() if until <= now]
        affected = {gateway for _, gateway in former}
        for key in former:
            del self._former[key]
        for replica in silent:
            affected |= self._elsewhere.pop(replica)[0].keys()
        return affected

    def has_proxy(self, gateway: Key) -> bool:
        return any(True for _ in self._known(gateway))

    def holds(self, gateway: Key, type_url: str, name: str, version: str | None = None) -> bool:
        """Returns whether any proxy has acknowledged the resource, in `version` or, without it, in any version."""
        acked = (versions.get(type_url, {}).get(name) for versions in self._known(gateway))
        return any(v == version if version is not None else v is not None for v in acked)

    def _known(self, gateway: Key) -> Iterator[Versions]:
        if (connected := self._here.get(gateway)) is not None:
            yield connected
        for acks in self.elsewhere(gateway):
            if acks.connected:
                yield acks.versions
        for (_, former), (versions, _) in self._former.items():
            if former == gateway:
                yield versions
