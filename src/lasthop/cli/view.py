"""The running controller as the admin address shows it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

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


class Runtime(Protocol):
    """A controller with what runs its proxies."""

    controller: Controller

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        """Those that run on this host."""

    def unready(self) -> list[str]:
        """Returns why the process is not ready, a line each."""

    def measures(self) -> Iterable[Measure]:
        """Returns what is counted in this way of running only."""


class ControllerView(EngineView):
    """The controller as the admin address shows it."""

    def __init__(self, runtime: Runtime, locate: Locate) -> None:
        super().__init__(runtime.controller.engine, locate)
        self._runtime, self._controller = runtime, runtime.controller
        controller, engine = runtime.controller, runtime.controller.engine

        def version() -> tuple[int, int] | None:
            """Membership and statuses follow the inputs only when everything has been settled."""
            return None if engine.unsettled else engine.graph.version

        async def documents(kind: str) -> list[dict[str, Any]]:
            return await in_slices(controller.statuses.documents(kind))

        self._hops, self._certificates = Shared(super().hops, version), Shared(super().certificates, version)
        kinds = (each.kind for each in KINDS.values() if has_status(each))
        self._documents = {kind: Shared(functools.partial(documents, kind), version) for kind in kinds}

    def readiness(self) -> Readiness:
        written = unapplied(self._controller.not_applied, self._controller.source_findings)
        return Readiness(tuple(self._runtime.unready()), tuple(written), self._controller.settled)

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        return self._runtime.proxies

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
        return await in_slices(self._controller.statuses.documents(kind))

    def counts(self) -> Mapping[str, int]:
        store = self._controller.engine.store
        return {kind: store.count(kind) for kind in KINDS}

    def measures(self) -> Iterator[Measure]:
        gateways = sorted(self._controller.fleet.gateways.items())
        states = [((key.path,), self._controller.server.state(key)) for key, _ in gateways]
        clients = [(name, state.proxies) for name, state in states]
        yield Measure("lasthop_xds_clients", "Proxies connected to this process.", ("gateway",), clients)
        synced = [(name, state.synced) for name, state in states]
        yield Measure("lasthop_xds_synced", "Whether each of these has confirmed all there is.", ("gateway",), synced)
        known = [(key, proxies.state) for key, proxies in gateways if proxies.state]
        programmed = [((key.path,), float(bool(state.ports or state.udp_ports))) for key, state in known]
        help = "Whether some port of the Gateway is served as it is written now."
        yield Measure("lasthop_gateway_programmed", help, ("gateway",), programmed)
        yield from self._runtime.measures()

    @property
    def time_to_programmed(self) -> Durations:
        return self._controller.time_to_programmed
