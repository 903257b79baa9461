"""Computes the layout of the picture: listeners, routes and backends of each Gateway in three columns, and the lines between
them. Pure.

Heights in a column are known here (and in `static/page.css`), so the server draws the lines without a browser. Lengths are in
sixteenths of the browser's font size, which are pixels by default.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from lasthop.engine.outputs.topology import ListenerReport, RouteReport
from lasthop.web.picture import Choice, Line, LineBundle, LineState, Row

T = TypeVar("T")

LISTENER: Final = 68
ROUTE: Final = 52
ROW: Final = 76
TALL: Final = 100
"""Height of a failing row whose reason takes more than a line."""
LINE_LENGTH: Final = 56
"""Characters that fit on a line."""
MAX_LISTENER_DEPTH: Final = 240
"""Maximum depth of an only listener, which stays beside the first rows."""
GAP: Final = 10
ROUTES_OF_LINE: Final = 4
"""Routes that are drawn for one line; the others are counted."""
MAX_PATHS: Final = 2
LISTENERS_SHOWN: Final = 10
IDLE_SHOWN: Final = 10
"""Routes without a backend, and Gateways without a line, that are drawn."""


class OverflowItem(msgspec.Struct, frozen=True):
    """Items of a column that are counted and not drawn."""

    count: int
    label: str


class PlacedItem(msgspec.Struct, Generic[T], frozen=True):
    item: T
    y: int
    height: int
    space: int
    """Space above it, after the previous item."""
    hops: tuple[str, ...] = ()
    """The rows that it leads to."""

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


class Link(msgspec.Struct, frozen=True):
    start: int
    end: int
    width: float
    hops: tuple[str, ...]
    state: LineState | None = None
    """None: before the last hop, where no state is known yet."""

    @property
    def path(self) -> str:
        return f"M0 {self.start}C50 {self.start} 50 {self.end} 100 {self.end}"


class Group(msgspec.Struct, frozen=True):
    """One Gateway."""

    gateway: str
    """Empty: bundles of several Gateways."""
    listeners: tuple[PlacedItem[ListenerReport | OverflowItem], ...]
    routes: tuple[PlacedItem[RouteReport | OverflowItem], ...]
    rows: tuple[PlacedItem[Row], ...]
    listener_links: tuple[Link, ...]
    """From listeners to routes."""
    route_links: tuple[Link, ...]
    """From routes to backends."""
    paths: Mapping[str, tuple[str, ...]]
    """The path to each single line as text, for screens without room for columns."""
    height: int

    @property
    def worst(self) -> int:
        return min((row.item.state.rank for row in self.rows), default=len(LineState))


def row_id(row: Row) -> str:
    return row.id if isinstance(row, Line) else f"{row.state.slug}-{row.lines[0].id}"


def width(rate: float) -> float:
    """Returns the thickness of a line: little without traffic, twelve times that with a thousand requests per second."""
    return round(min(14.0, 1.5 + 2.5 * math.log10(1 + 10 * rate)), 1) if rate > 0 else 1.5


class KnownObjects(msgspec.Struct, frozen=True):
    """The objects beside the lines that a picture is drawn from."""

    routes: Mapping[str, RouteReport]
    listeners: Mapping[str, tuple[ListenerReport, ...]]
    """By Gateway."""
    idle: Mapping[str, tuple[str, ...]] = {}
    """Routes without a backend, by Gateway."""


class RouteNode(NamedTuple):
    """A route, or several, in the middle column."""

    item: RouteReport | OverflowItem
    routes: tuple[str, ...]
    """The routes in the node."""
    rows: list[int]
    """The rows that it leads to."""


def draw(choice: Choice, objects: KnownObjects, *, whole: bool) -> tuple[Group, ...]:
    """Draws the chosen rows. `whole`: without a filter, so that routes without a backend are drawn too."""
    by_gateway: dict[str, list[Row]] = {}
    for row in choice.rows:
        by_gateway.setdefault(row.gateway, []).append(row)
    groups = [_group(gateway, rows, objects, whole=whole) for gateway, rows in by_gateway.items()]
    if whole:
        empty = [gateway for gateway in objects.listeners if gateway not in by_gateway]
        groups += [_group(gateway, [], objects, whole=True) for gateway in empty[:IDLE_SHOWN]]
    return tuple(sorted(groups, key=lambda group: (not group.gateway, group.worst, group.gateway)))


def _group(gateway: str, rows: list[Row], objects: KnownObjects, *, whole: bool) -> Group:
    nodes = _middle(rows, objects)
    if whole:
        nodes |= {name: RouteNode(objects.routes[name], (name,), []) for name in objects.idle.get(gateway, ())[:IDLE_SHOWN]}
    placed_rows = _stack(rows, [TALL if _tall(row) else ROW for row in rows], None)
    middle = [nodes[name] for name in sorted(nodes, key=lambda name: (_mean(nodes[name].rows, len(rows)), name))]
    placed_routes = _placed_routes(middle, placed_rows)
    attachments = _attachments(gateway, middle, objects, whole=whole)
    height = max(_end(placed_rows), _end(placed_routes))
    placed_listeners, listener_links = _listeners(attachments, placed_routes, height)
    route_links = _route_links(middle, placed_routes, placed_rows)
    paths, end = _paths_of_lines(gateway, rows, objects), max(height, _end(placed_listeners))
    return Group(gateway, placed_listeners, placed_routes, placed_rows, listener_links, route_links, paths, end)


def _placed_routes(
    nodes: Sequence[RouteNode], rows: Sequence[PlacedItem[Row]]
) -> tuple[PlacedItem[RouteReport | OverflowItem], ...]:
    """Places each node beside the middle of its rows."""
    height = _end(rows)
    targets = [_mean([rows[n].middle for n in node.rows], height) for node in nodes]
    reached = [tuple(row_id(rows[n].item) for n in node.rows) for node in nodes]
    return _stack([node.item for node in nodes], [ROUTE] * len(nodes), targets, reached, height)


def _middle(rows: Sequence[Row], objects: KnownObjects) -> dict[str, RouteNode]:
    """Returns the nodes of the middle column that lead to rows, by name."""
    nodes: dict[str, RouteNode] = {}
    for number, row in enumerate(rows):
        for name, item, route_names in _routes_of(row, objects):
            nodes.setdefault(name, RouteNode(item, route_names, [])).rows.append(number)
    return nodes


def _route_links(
    nodes: Sequence[RouteNode], routes: Sequence[PlacedItem[RouteReport | OverflowItem]], rows: Sequence[PlacedItem[Row]]
) -> tuple[Link, ...]:
    """Returns the lines from routes to rows; the worst are drawn last, on top of the others."""
    links = [
        Link(route.middle, rows[n].middle, _width(node.item, rows[n].item), (row_id(rows[n].item),), rows[n].item.state)
        for node, route in zip(nodes, routes, strict=True)
        for n in node.rows
    ]
    return tuple(sorted(links, key=lambda link: -link.state.rank if link.state else 0))


def _paths_of_lines(gateway: str, rows: Iterable[Row], objects: KnownObjects) -> dict[str, tuple[str, ...]]:
    listeners = {listener.id: listener for listener in objects.listeners.get(gateway, ())}
    return {row.id: tuple(_path_of_line(row, listeners, objects)) for row in rows if isinstance(row, Line)}


def _path_of_line(line: Line, listeners: Mapping[str, ListenerReport], objects: KnownObjects) -> Iterable[str]:
    routes = [objects.routes[name] for name in line.routes if name in objects.routes]
    for route in routes[:MAX_PATHS]:
        ports = dict.fromkeys(
            f":{listeners[id].port} {listeners[id].hostname}".rstrip() for id in route.listeners if id in listeners
        )
        yield f"{', '.join(list(ports)[:MAX_PATHS])} → {route.name}" if ports else route.name
    if len(routes) > MAX_PATHS:
        yield f"and {len(routes) - MAX_PATHS} more routes"


def _tall(row: Row) -> bool:
    return isinstance(row, Line) and row.state in (LineState.FAILING, LineState.PARTLY) and len(row.words) > LINE_LENGTH


def _routes_of(row: Row, objects: KnownObjects) -> Iterable[tuple[str, RouteReport | OverflowItem, tuple[str, ...]]]:
    """Yields the nodes of the middle column that lead to a row: name, node, and the routes in it."""
    lines = row.lines if isinstance(row, LineBundle) else (row,)
    leading = dict.fromkeys(itertools.chain.from_iterable(line.routes for line in lines))
    names = tuple(name for name in leading if name in objects.routes)
    shown = () if isinstance(row, LineBundle) and len(names) > 1 else names[:ROUTES_OF_LINE]
    for name in shown:
        yield name, objects.routes[name], (name,)
    if more := names[len(shown) :]:
        yield f"~{row_id(row)}", OverflowItem(len(more), "more routes" if shown else "routes"), more


def _attachments(
    gateway: str, nodes: Sequence[RouteNode], objects: KnownObjects, *, whole: bool
) -> list[tuple[ListenerReport | OverflowItem, tuple[int, ...]]]:
    """Returns the listeners, each with its attached nodes of the middle column."""
    of = objects.listeners if not gateway else {gateway: objects.listeners.get(gateway, ())}
    by_id = {listener.id: listener for listeners in of.values() for listener in listeners}
    used = _used(nodes, objects, by_id)
    ordered = list(dict.fromkeys((*used, *by_id))) if whole else list(used)
    shown, more = ordered[:LISTENERS_SHOWN], ordered[LISTENERS_SHOWN:]
    attachments: list[tuple[ListenerReport | OverflowItem, tuple[int, ...]]] = [
        (by_id[id], tuple(used.get(id, ()))) for id in shown
    ]
    if more:
        ends = dict.fromkeys(at for id in more for at in used.get(id, ()))
        attachments.append((OverflowItem(len(more), "more listeners"), tuple(ends)))
    return attachments


def _used(nodes: Sequence[RouteNode], objects: KnownObjects, ids: Collection[str]) -> dict[str, dict[int, None]]:
    """Returns the listeners with attached routes, each with the positions of their nodes, in order."""
    used: dict[str, dict[int, None]] = {}
    for at, node in enumerate(nodes):
        for id in (id for route in node.routes for id in objects.routes[route].listeners if id in ids):
            used.setdefault(id, {})[at] = None
    return used


def _listeners(
    attachments: list[tuple[ListenerReport | OverflowItem, tuple[int, ...]]],
    routes: Sequence[PlacedItem[RouteReport | OverflowItem]],
    height: int,
) -> tuple[tuple[PlacedItem[ListenerReport | OverflowItem], ...], tuple[Link, ...]]:
    attachments = sorted(attachments, key=lambda entry: (isinstance(entry[0], OverflowItem), _mean(entry[1], len(routes))))
    targets = [_mean([routes[at].middle for at in ends], height) for _, ends in attachments]
    if len(targets) == 1:
        targets = [min(MAX_LISTENER_DEPTH, targets[0])]
    hops = [tuple(dict.fromkeys(id for at in ends for id in routes[at].hops)) for _, ends in attachments]
    placed = _stack([item for item, _ in attachments], [LISTENER] * len(attachments), targets, hops, height)
    links = tuple(
        Link(placed[number].middle, routes[at].middle, _route_width(routes[at].item), routes[at].hops)
        for number, (_, ends) in enumerate(attachments)
        for at in ends
    )
    return placed, links


def _route_width(route: RouteReport | OverflowItem) -> float:
    return width(route.rate) if isinstance(route, RouteReport) else width(0)


def _width(route: RouteReport | OverflowItem, row: Row) -> float:
    """Returns the thickness of a line. The share of one route in a hop with several is unknown; it is at most the route's
    rate."""
    rate = row.rate
    alone = isinstance(row, LineBundle) or len(row.report.routes) == 1
    return width(rate if alone or isinstance(route, OverflowItem) else min(rate, route.rate))


def _mean(values: Iterable[float], otherwise: float) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else otherwise


def _end(column: Sequence[PlacedItem[T]]) -> int:
    return column[-1].y + column[-1].height if column else 0


def _stack(
    items: Sequence[T],
    heights: Sequence[int],
    middles: Sequence[float] | None,
    hops: Sequence[tuple[str, ...]] = (),
    height: int = 0,
) -> tuple[PlacedItem[T], ...]:
    """Places a column in order, each item as near to its target as the others allow."""
    tops: list[int] = []
    end = 0
    for number, size in enumerate(heights):
        target = int(middles[number] - size / 2) if middles else 0
        tops.append(max(target, end + GAP if number else 0))
        end = tops[-1] + size
    # Items below the end of the longest column move up as far as there is room.
    limit = max(height, sum(heights) + GAP * (len(heights) - 1))
    for number in reversed(range(len(tops))):
        tops[number] = min(tops[number], limit - heights[number])
        limit = tops[number] - GAP
    ends = [0, *(top + size for top, size in zip(tops, heights, strict=True))]
    return tuple(
        PlacedItem(item, top, size, top - ends[number], hops[number] if hops else ())
        for number, (item, top, size) in enumerate(zip(items, tops, heights, strict=True))
    )
