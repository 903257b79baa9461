"""The running controller as the admin address shows it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from lasthop.api.kinds import KINDS, has_status
from lasthop.api.meta import Key
from lasthop.controller import Controller
from lasthop.outputs.audit.certificates import CertificateReport
from lasthop.outputs.audit.hops import HopReport
from lasthop.plan.finding import Finding
from lasthop.plan.not_applied import NotApplied
from lasthop.proxy.process import Proxy
from lasthop.web.engine_view import EngineView, Locate
from lasthop.web.measures import Durations, Measure
from lasthop.web.readiness import Readiness, unapplied
from lasthop.web.slices import Shared, in_slices
from lasthop.xds.server import Traffic


class ControllerView(EngineView):
    """The controller as the admin address shows it."""

    def __init__(self, controller: Controller, proxies: Mapping[Key, Proxy], locate: Locate) -> None:
        super().__init__(controller.engine, locate)
        self._controller = controller
        self.proxies = proxies
        """Those that run on this host."""
        engine = controller.engine

        def version() -> tuple[int, int] | None:
            """Membership and statuses follow the inputs only when everything has been settled."""
            return None if engine.unsettled else engine.graph.version

        async def documents(kind: str) -> list[dict[str, Any]]:
            return await in_slices(controller.book.documents(kind))

        self._hops, self._certificates = Shared(super().hops, version), Shared(super().certificates, version)
        kinds = (each.kind for each in KINDS.values() if has_status(each))
        self._documents = {kind: Shared(functools.partial(documents, kind), version) for kind in kinds}

    def readiness(self) -> Readiness:
        written = unapplied(self._controller.not_applied, self._controller.source_findings)
        return Readiness(tuple(self._controller.unready()), tuple(written), self._controller.settled)

    @property
    def traffic(self) -> Mapping[str, Traffic]:
        return self._controller.server.traffic

    async def hops(self) -> list[HopReport]:
        return await self._hops.get()

    async def certificates(self) -> list[CertificateReport]:
        return await self._certificates.get()

    async def findings(self) -> list[Finding]:
        return self._controller.findings()

    async def problems(self) -> tuple[str, ...]:
        return self.readiness().problems

    def not_applied(self) -> tuple[NotApplied, ...]:
        return self._controller.not_applied

    async def objects(self, kind: str | None = None) -> list[dict[str, Any]]:
        kinds = [kind] if kind in KINDS else [each.kind for each in KINDS.values() if has_status(each)]
        return [document for each in kinds for document in await self._documents_of(each)]

    async def _documents_of(self, kind: str) -> list[dict[str, Any]]:
        """Those with a status are kept until something changes: every open page asks for them each second."""
        if shared := self._documents.get(kind):
            return await shared.get()
        return await in_slices(self._controller.book.documents(kind))

    def counts(self) -> Mapping[str, int]:
        store = self._controller.engine.store
        return {kind: store.count(kind) for kind in KINDS}

    def measures(self) -> Iterable[Measure]:
        return self._controller.measures()

    @property
    def time_to_programmed(self) -> Durations:
        return self._controller.time_to_programmed
