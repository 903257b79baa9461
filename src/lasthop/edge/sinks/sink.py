"""Declares what takes the results of a controller: runs proxies, writes statuses, reports to other replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import Status
from lasthop.engine.plan.finding import FindingChanges
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.upstream import Hop


class Sink:
    """Ignores everything; a sink overrides what it needs. Called on the event loop; must not block."""

    def objects_changed(self, changes: Mapping[Key, Object | None]) -> None:
        """Takes the objects that have come in; None: it is gone."""

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        """Takes all Gateways that need proxies."""

    def status_changed(self, changes: Mapping[Key, Status | None]) -> None:
        """Takes changed statuses; None removes our part of the object's status."""

    def hops_changed(self, hops: Sequence[Hop]) -> None:
        """Takes the hops whose clusters have changed, or are gone."""

    def findings_changed(self, changes: FindingChanges) -> None:
        """Takes new and resolved findings, from when everything was read once."""

    def proxies_changed(self) -> None:
        """Learns that `Fleet.report()` has changed."""
