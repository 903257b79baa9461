"""Declares the interface of a sink, which receives a controller's results: runs proxies, writes statuses, reports to other
replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.status import Status
from lasthop.engine.plan.finding import FindingChanges
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.upstream import Hop


class Sink:
    """Ignores everything; a subclass overrides the methods it needs. Called on the event loop; must not block."""

    def objects_changed(self, changes: Mapping[Key, Object | None]) -> None:
        """Receives changed objects; None: deleted."""

    def want(self, gateways: Mapping[Key, GatewayPlan]) -> None:
        """Receives all Gateways that need proxies."""

    def status_changed(self, changes: Mapping[Key, Status | None]) -> None:
        """Receives changed statuses; None removes our part of the object's status."""

    def hops_changed(self, hops: Sequence[Hop]) -> None:
        """Receives the hops whose clusters have changed or were removed."""

    def findings_changed(self, changes: FindingChanges) -> None:
        """Receives new and resolved findings, once everything has been read."""

    def proxies_changed(self) -> None:
        """Called when `Fleet.report()` has changed."""
