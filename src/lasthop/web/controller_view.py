"""Provides the running controller's state to the admin API and page."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS, has_status
from lasthop.base.api.meta import Key
from lasthop.base.text.logs import LOG
from lasthop.edge.proxy.admin import AdminUnavailable
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.request_feed import RequestFeed
from lasthop.edge.proxy.supervisor import Proxy
from lasthop.edge.slices import Shared, in_slices
from lasthop.engine.outputs.audit.audit import Audit
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import observed
from lasthop.engine.outputs.status.ready import class_owners, older_texts, readiness
from lasthop.engine.outputs.status.summary import Summary
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.not_applied import NotApplied
from lasthop.engine.plan.request import Request
from lasthop.run.controller import Controller
from lasthop.web import traffic
from lasthop.web.engine_view import EngineView, Locate
from lasthop.web.failures import RecentFailures, with_history
from lasthop.web.redaction import redacted
from lasthop.web.traffic import TrafficReport


class Readiness(msgspec.Struct, frozen=True):
    unready: tuple[str, ...] = ()
    """Reasons why the process is not ready, a line each; empty if it is ready."""
    unapplied: tuple[str, ...] = ()
    """Input that is not in force, a line each. The process may be ready all the same, with the previous input."""
    settled: bool = True
    """All input is computed; under many edits that may take a moment."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns all lines, input first, because it is the cause if nothing is served."""
        return (*self.unapplied, *self.unready)


class Runtime(Protocol):
    controller: Controller

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        """The proxies on this host."""

    @property
    def requests(self) -> RequestFeed | None:
        """The feed of the proxies on this host; None: they run elsewhere."""

    def unready(self) -> list[str]:
        """Returns why the process is not ready, a line each."""


class ControllerView(EngineView):
    """Caches expensive values until something changes, because every open page requests them each second."""

    def __init__(self, runtime: Runtime, locate: Locate | None = None, where: str = "", probe_note: str = "") -> None:
        """`where`: the served folder or cluster, for display. `probe_note`: the origin of probes, if different from the
        proxies'."""
        super().__init__(runtime.controller.engine, locate)
        self.probe_notes = (probe_note,) if probe_note else ()
        self._runtime, self.controller, self.where = runtime, runtime.controller, where
        self.failures = RecentFailures()
        engine = self.engine

        def version() -> tuple[object, ...] | None:
            """Returns the version of the inputs, which membership and statuses match only once everything is settled."""
            return None if engine.unsettled else (engine.graph.version, self.controller.not_applied)

        self._hops, self._certificates = Shared(super().hops, version), Shared(super().certificates, version)
        kinds = (kind.kind for kind in KINDS.values() if has_status(kind))
        self._shared = {kind: Shared(functools.partial(self._documents, kind), version) for kind in kinds}

    async def envoy_config(self, gateway: str = "") -> Json:
        """Returns the configuration of each Gateway's Envoy, or of one (`namespace/name`), without private keys. An Envoy that
        does not respond has an error instead."""
        configs = {}
        for key, proxy in sorted(self._runtime.proxies.items()):
            if gateway in ("", key.path):
                try:
                    configs[key.path] = await asyncio.to_thread(_config, await proxy.admin.config_dump())
                except AdminUnavailable as error:
                    configs[key.path] = {"error": str(error)}
        return configs

    async def log_levels(self) -> Json:
        """Returns Lasthop's log level, and that of each Gateway's Envoy, or its error."""
        levels: Json = {}
        for key, proxy in sorted(self._runtime.proxies.items()):
            try:
                levels[key.path] = {"level": await proxy.admin.log_level()}
            except AdminUnavailable as error:
                levels[key.path] = {"error": str(error)}
        return {"lasthop": LOG.level, "envoy": levels}

    async def set_log_levels(self, lasthop: str, envoy: str) -> Json:
        """Sets the log levels; empty: unchanged. Returns the resulting levels."""
        if lasthop:
            LOG.level = lasthop
        for proxy in self._runtime.proxies.values() if envoy else ():
            with contextlib.suppress(AdminUnavailable):  # the returned levels contain the error
                await proxy.admin.set_log_level(envoy)
        return await self.log_levels()

    def failed(self, entry: AccessLogEntry) -> None:
        self.failures.add(entry, time.time())

    @property
    def requests(self) -> RequestFeed | None:
        return self._runtime.requests

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        """Adds the recent results of such requests."""
        answers = await super().explain_request(request, gateway)
        return [with_history(answer, self.controller.observations, self.requests) for answer in answers]

    def readiness(self) -> Readiness:
        """Returns whether the process is ready, and which input is not in force."""
        written = _unapplied(self.controller.not_applied, self.controller.source_findings)
        return Readiness(tuple(self._runtime.unready()), tuple(written), self.controller.settled)

    async def findings(self) -> list[Finding]:
        return self.controller.findings()

    async def hops(self) -> list[HopReport]:
        return await self._hops.get()

    async def audit(self) -> Audit:
        """Returns the audit, with observations beside the requirements."""
        report, graph, seen = await super().audit(), self.engine.graph, self.controller.observations.seen
        return msgspec.structs.replace(report, hops=tuple(await in_slices(observed(graph, hop, seen) for hop in report.hops)))

    async def traffic(self) -> TrafficReport:
        seen, graph = self.controller.observations, self.engine.graph
        hops = await in_slices(traffic.each_hop(graph, seen, sorted(seen.hops())))
        routes = await in_slices(traffic.each_route(seen))
        proxies = traffic.each_proxy(seen, sorted(self.controller.fleet.gateways))
        return TrafficReport(traffic.in_order(hops), tuple(routes), tuple(proxies))

    async def certificates(self) -> list[CertificateReport]:
        return await self._certificates.get()

    async def objects(self, kind: str | None = None) -> list[Json]:
        """Returns objects that have a status of ours, or all of one kind, in the form of a cluster."""
        shared = self._shared.get(kind or "")
        if shared is not None:
            return await shared.get()
        if kind in KINDS:
            return await self._documents(kind)
        return [document for cached in self._shared.values() for document in await cached.get()]

    async def _documents(self, kind: str) -> list[Json]:
        """Returns the objects of a kind with `ready`, so that every view of an object shows the same value."""
        owners, older = class_owners(self.engine.store), older_texts(self.controller.not_applied)

        def judged(key: Key) -> Json | None:
            document = self.controller.statuses.document(key)
            ready = readiness(self.engine.graph, key, document, owners, older) if document else None
            return {**document, "ready": ready._asdict()} if document and ready else None

        return [document for document in await in_slices(map(judged, self.engine.store.keys(kind))) if document]

    def ready(self, key: Key) -> Summary | None:
        """Returns READY of an object; None if it does not exist."""
        document, older = self.controller.statuses.document(key), older_texts(self.controller.not_applied)
        return readiness(self.engine.graph, key, document, class_owners(self.engine.store), older) if document else None


def _config(body: bytes) -> Any:
    return redacted(msgspec.json.decode(body))


def _unapplied(refused: Collection[NotApplied], findings: Iterable[Finding]) -> Iterator[str]:
    """Yields the input that is not in force: a line for each rejected file, and for each other error in a file."""
    files = {entry.file for entry in refused}
    yield from map(str, refused)
    for finding in findings:
        if finding.file and finding.file not in files and finding.severity is Severity.ERROR:
            yield str(finding)
