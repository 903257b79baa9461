"""Collects the page's data from a running controller in slices. Plain, immutable values are then drawn outside the event
loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.edge.observe.observations import Observations, merged
from lasthop.edge.probe.result import ProbeResult
from lasthop.edge.slices import Shared, in_slices
from lasthop.engine.outputs.audit.audit import placed
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.audit.observed import hops_of, leaves, with_figures
from lasthop.engine.outputs.findings.root_causes import RootCause, root_causes
from lasthop.engine.outputs.status.summary import Summary
from lasthop.engine.outputs.topology import ListenerReport, RouteReport, deciding_objects, each_listener, each_route
from lasthop.engine.plan.finding import Severity
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.hops.observed import seen_now
from lasthop.engine.store.graph import Graph
from lasthop.web.controller_view import ControllerView
from lasthop.web.drawing import Group, KnownObjects, OverflowItem, draw
from lasthop.web.engine_view import located
from lasthop.web.failures import Failed, latest, observed_failures
from lasthop.web.picture import Choice, Filter, Line, choose, line
from lasthop.web.probing import Probes
from lasthop.web.redaction import without_secrets

AGE: Final = 1.0
"""Seconds for which lines are cached while there is traffic, however many pages are open."""
MAX_LOCATED: Final = 50
"""Findings whose file and line are determined."""
MAX_DECIDING_ROUTES: Final = 8
"""Routes of a line whose YAML is shown."""


class PageData(msgspec.Struct, frozen=True):
    """The data for all pictures, before any filter."""

    lines: tuple[Line, ...]
    """In display order."""
    objects: KnownObjects
    root_causes: tuple[RootCause, ...]
    certificates: tuple[CertificateReport, ...]
    """Certificates in objects and from backends, the first to expire first."""


class Picture(msgspec.Struct, frozen=True):
    page_filter: Filter
    choice: Choice
    groups: tuple[Group, ...]
    gateways: Mapping[str, Summary]
    """READY and WHY of each drawn Gateway."""
    routes: Mapping[str, Summary]
    ready: bool
    problems: tuple[str, ...]
    root_causes: tuple[RootCause, ...]
    failures: tuple[Failed, ...]
    certificates: tuple[CertificateReport, ...]
    names: Mapping[str, str]
    """Names of the lines of failures, by id."""
    rate: float


class Detail(msgspec.Struct, frozen=True):
    line: Line
    explained: tuple[tuple[Key, Json], ...]
    """The deciding objects, each with its explanation tree; the first is the most important."""
    source_objects: tuple[tuple[Key, str, Json], ...]
    """The objects that determine the hop: key, `file:line`, and the object as written."""


class PageModel:
    def __init__(self, view: ControllerView) -> None:
        self.view, self.engine = view, view.engine
        self.probes = Probes(self._probe)
        self._reports: list[HopReport] = []
        self._hops: list[list[Hop]] = []
        """The hops of each report; they change only with the reports."""
        self._data = Shared(self._make_data, seconds=AGE)

    async def _make_data(self) -> PageData:
        lines = await self._make_lines()
        objects = await self._make_objects(lines)
        held = await self.view.certificates()
        certificates = await asyncio.to_thread(_certificates, held, lines)
        return PageData(lines, objects, await self._make_root_causes(), certificates)

    async def _make_lines(self) -> tuple[Line, ...]:
        """Returns all lines in order, each port once: differences between protocols of a port are not shown."""
        observations, graph = self.view.controller.observations, self.engine.graph
        reports = await self.view.hops()
        if reports is not self._reports:
            self._hops = await in_slices(map(hops_of, reports))
            self._reports = reports
        pairs = zip(reports, self._hops, strict=True)
        lines = await in_slices(_observed_line(graph, observations, report, hops) for report, hops in pairs)
        return await asyncio.to_thread(_in_order, lines)

    async def _make_objects(self, lines: Sequence[Line]) -> KnownObjects:
        graph, store, observations = self.engine.graph, self.engine.store, self.view.controller.observations
        listeners: dict[str, list[ListenerReport]] = {}
        for listener in await in_slices(each_listener(graph, store.keys("Gateway"))):
            listeners.setdefault(listener.gateway, []).append(listener)
        used = observations.routes()

        def with_rate(route: RouteReport) -> RouteReport:
            rate = observations.per_second(route.key)[0] if route.key in used else 0.0
            return msgspec.structs.replace(route, rate=rate) if rate else route

        keys = (key for kind in ROUTE_KINDS for key in store.keys(kind))
        routes = {route.name: route for route in await in_slices(map(with_rate, each_route(graph, keys)))}
        return await asyncio.to_thread(_known_objects, routes, listeners, lines)

    async def picture(self, filter: Filter, *, at_once: bool = False) -> Picture:
        """Returns the picture for a filter. `at_once`: from the last computed data."""
        data = await (self._data.at_once() if at_once else self._data.get())
        lines = data.lines
        choice = await asyncio.to_thread(choose, lines, filter)
        groups = await asyncio.to_thread(draw, choice, data.objects, whole=filter.empty)
        readiness = self.view.readiness()
        keys = {key.path: key for key in self.engine.store.keys("Gateway")}
        gateways = await in_slices((group.gateway, self._summary(keys.get(group.gateway))) for group in groups)
        shown = [node.item for group in groups for node in group.routes if not isinstance(node.item, OverflowItem)]
        routes = await in_slices((route.name, self._summary(route.key)) for route in shown)
        failed = await asyncio.to_thread(_failed, self.view.failures.last(), lines)
        return Picture(
            filter,
            choice,
            groups,
            dict(gateways),
            dict(routes),
            not readiness.unready,
            readiness.problems,
            data.root_causes,
            tuple(failed),
            data.certificates,
            await asyncio.to_thread(_names, lines, {failure.line for failure in failed}),
            sum(line.rate for line in lines),
        )

    def _summary(self, key: Key | None) -> Summary:
        return (self.view.ready(key) if key else None) or Summary("", "")

    async def _make_root_causes(self) -> tuple[RootCause, ...]:
        """Returns errors before warnings, and in each group findings with a file first. If there are many, only the first are
        located in files."""
        broken = {key: entry.file for entry in self.view.controller.not_applied for key in entry.objects}
        ordered = await asyncio.to_thread(root_causes, await self.view.findings(), broken)
        ordered = await asyncio.to_thread(sorted, ordered, key=_errors_first)
        located = await in_slices(map(self._located, ordered[:MAX_LOCATED]))
        return (*sorted(located, key=_errors_first), *ordered[MAX_LOCATED:])

    def _located(self, root: RootCause) -> RootCause:
        return RootCause(located(root.finding, self.view.locate), root.follows)

    async def line(self, id: str) -> Line | None:
        selected = _line(await self._data.at_once(), id) or _line(await self._data.get(), id)
        return msgspec.structs.replace(selected, report=placed(selected.report, self.view.locate)) if selected else None

    async def detail(self, id: str) -> Detail | None:
        selected = await self.line(id)
        if selected is None:
            return None
        deciding = self._deciding_keys(selected)
        explained = [(key, tree) for key in _worth_explaining(deciding) if (tree := await self.view.explain(key))]
        documents = await in_slices((key, self._place(key), self._written(key)) for key in deciding)
        return Detail(selected, tuple(explained), tuple(entry for entry in documents if entry[2]))

    def _deciding_keys(self, selected: Line) -> list[Key]:
        report = msgspec.structs.replace(selected.report, routes=selected.report.routes[:MAX_DECIDING_ROUTES])
        return deciding_objects(self.engine.graph, report)

    def _place(self, key: Key) -> str:
        place = self.view.locate(key)
        return f"{place[0]}:{place[1]}" if place else ""

    def _written(self, key: Key) -> Json:
        """Returns an object as written, without its status and without secrets."""
        document = self.view.controller.statuses.document(key)
        return {name: part for name, part in without_secrets(document).items() if name != "status"} if document else {}

    async def _probe(self, id: str) -> ProbeResult | None:
        selected = await self.line(id)
        return await self.view.probe_hop(selected.report) if selected else None


def _observed_line(g: Graph, observations: Observations, report: HopReport, hops: Iterable[Hop]) -> Line:
    """Returns the line of a hop with its observations; the protocols of a port are one line."""
    figures = {hop: seen_now(g, hop, seen) for hop in hops if (seen := observations.seen(hop))}
    if not figures:
        return line(report)
    return line(with_figures(g, report, figures), merged(list(figures.values())), observations.per_second(*figures))


def _worth_explaining(keys: Sequence[Key]) -> list[Key]:
    """Returns the object that decides the hop's connection, and the routes."""
    first = [key for key in keys if key.kind in ("BackendTLSPolicy", "XBackend", *SERVICE_GROUPS)][:1]
    return first + [key for key in keys if key.kind in ROUTE_KINDS]


def _line(data: PageData, id: str) -> Line | None:
    return next((line for line in data.lines if line.id == id), None)


def _certificates(held: Sequence[CertificateReport], lines: Sequence[Line]) -> tuple[CertificateReport, ...]:
    return tuple(sorted((*held, *leaves(line.report for line in lines)), key=lambda line: line.order))


def _errors_first(root: RootCause) -> tuple[bool, bool]:
    return root.finding.severity is not Severity.ERROR, not root.finding.file


def _in_order(lines: list[Line]) -> tuple[Line, ...]:
    """Returns each line once: if the protocols of a port differ, the worst."""
    kept: dict[str, Line] = {}
    for item in sorted(lines, key=lambda line: line.order):
        kept.setdefault(item.id, item)
    return tuple(kept.values())


def _known_objects(
    routes: dict[str, RouteReport], listeners: dict[str, list[ListenerReport]], lines: Sequence[Line]
) -> KnownObjects:
    leading = {name for line in lines for name in line.routes}
    idle: dict[str, list[str]] = {}
    for name in routes.keys() - leading:
        for gateway in routes[name].gateways:
            idle.setdefault(gateway, []).append(name)
    return KnownObjects(
        routes,
        {gateway: tuple(reports) for gateway, reports in listeners.items()},
        {gateway: tuple(sorted(names)) for gateway, names in idle.items()},
    )


def _failed(recent: list[Failed], lines: Sequence[Line]) -> list[Failed]:
    return latest(recent, observed_failures(lines))


def _names(lines: Sequence[Line], ids: set[str]) -> dict[str, str]:
    return {line.id: line.report.address for line in lines if line.id in ids}
