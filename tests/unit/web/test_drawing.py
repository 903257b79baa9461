"""Positions in the picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.outputs.topology import ListenerReport, RouteReport
from lasthop.engine.plan.observation import Health
from lasthop.engine.plan.strength import Strength
from lasthop.web.drawing import (
    GAP,
    LISTENER,
    LISTENERS_SHOWN,
    ROUTE,
    ROW,
    TALL,
    Group,
    KnownObjects,
    OverflowItem,
    PlacedItem,
    draw,
    row_id,
    width,
)
from lasthop.web.picture import Filter, Line, LineState, choose, line


def listener(name: str, gateway: str = "edge/web") -> ListenerReport:
    return ListenerReport(f"Gateway {gateway} {name}", gateway, name, 443, "HTTPS", f"{name}.example")


def route(name: str, *listeners: str, gateway: str = "edge/web") -> RouteReport:
    return RouteReport(
        Key.read("HTTPRoute", name),
        tuple(f"Gateway {gateway} {name_of_listener}" for name_of_listener in listeners),
        (gateway,),
    )


def hop(name: str, *routes: str, health: Health = Health.WORKING, gateway: str = "edge/web") -> Line:
    leading = tuple(Key.read("HTTPRoute", route_name) for route_name in routes)
    between = (Key.read("Gateway", gateway), Key.read("Service", name))
    happened = Observed(health, 0.0, 0.0, 0.0, 0, 0, 0, (), (), ())
    return line(HopReport(*between, 443, Strength.VERIFIED, "its own CA", routes=leading, observed=happened))


def known(
    routes: list[RouteReport], listeners: list[ListenerReport], idle: Mapping[str, tuple[str, ...]] | None = None
) -> KnownObjects:
    by_gateway: dict[str, tuple[ListenerReport, ...]] = {}
    for report in listeners:
        by_gateway[report.gateway] = (*by_gateway.get(report.gateway, ()), report)
    return KnownObjects({report.name: report for report in routes}, by_gateway, idle or {})


def drawn(lines: list[Line], known_objects: KnownObjects, *, whole: bool = True) -> tuple[Group, ...]:
    return draw(choose(sorted(lines, key=lambda placed: placed.order), Filter()), known_objects, whole=whole)


def test_lines_go_from_the_listener_over_the_route_to_the_backend() -> None:
    known_objects = known([route("a/r", "one"), route("a/s", "one", "two")], [listener("one"), listener("two")])
    (group,) = drawn([hop("a/x", "a/r"), hop("a/y", "a/r", "a/s")], known_objects)
    listeners = {node.middle: node.item.name for node in group.listeners if isinstance(node.item, ListenerReport)}
    routes = {node.middle: node.item.name for node in group.routes if isinstance(node.item, RouteReport)}
    rows = {node.middle: node.item.report.backend.path for node in group.rows if isinstance(node.item, Line)}
    assert {(listeners[link.start], routes[link.end]) for link in group.listener_links} == {
        ("one", "HTTPRoute a/r"),
        ("one", "HTTPRoute a/s"),
        ("two", "HTTPRoute a/s"),
    }
    assert {(routes[link.start], rows[link.end]) for link in group.route_links} == {
        ("HTTPRoute a/r", "a/x"),
        ("HTTPRoute a/r", "a/y"),
        ("HTTPRoute a/s", "a/y"),
    }
    assert {link.state for link in group.route_links} == {LineState.VERIFIED} and {
        link.state for link in group.listener_links
    } == {None}


def test_listeners_without_hops_are_drawn_only_in_the_whole_picture() -> None:
    idle = {"edge/web": ("HTTPRoute a/idle",)}
    known_objects = known(
        [route("a/r", "one"), route("a/idle")], [listener("one"), listener("two"), listener("x", "edge/new")], idle
    )
    web, new = drawn([hop("a/x", "a/r")], known_objects)
    assert [node.item.name for node in web.routes if isinstance(node.item, RouteReport)] == [
        "HTTPRoute a/r",
        "HTTPRoute a/idle",
    ]
    assert len(web.listeners) == 2
    assert (new.gateway, new.rows) == ("edge/new", ())
    (web,) = drawn([hop("a/x", "a/r")], known_objects, whole=False)
    assert len(web.routes) == len(web.listeners) == 1


def test_a_gateway_that_fails_comes_first() -> None:
    lines = [hop("a/x", "a/r"), hop("b/y", "b/r", health=Health.FAILING, gateway="edge/zoo")]
    groups = drawn(lines, known([route("a/r"), route("b/r", gateway="edge/zoo")], []))
    assert [group.gateway for group in groups] == ["edge/zoo", "edge/web"]


def test_many_routes_and_listeners_are_counted_and_not_drawn() -> None:
    names = [f"a/r{number}" for number in range(300)]
    listeners = [listener(f"l{number}") for number in range(300)]
    routes = [route(name, f"l{number}") for number, name in enumerate(names)]
    (group,) = drawn([hop("a/x", *names)], known(routes, listeners))
    counted = [node.item for node in group.routes if isinstance(node.item, OverflowItem)]
    assert [(count.count, count.label) for count in counted] == [(296, "more routes")]
    assert len(group.listeners) == LISTENERS_SHOWN + 1
    last = group.listeners[-1].item
    assert isinstance(last, OverflowItem) and last.count == 300 - LISTENERS_SHOWN


def test_a_bundle_has_one_line_from_its_routes() -> None:
    names = [f"a/s{number}" for number in range(200)]
    known_objects = known([route(name, "one") for name in names], [listener("one")])
    (group,) = drawn([hop(name, name) for name in names], known_objects)
    assert len(group.rows) == len(group.route_links) == len(group.routes) == 1
    (counted,) = (node.item for node in group.routes)
    assert isinstance(counted, OverflowItem) and (counted.count, counted.label) == (200, "routes")


def test_lines_get_thicker_with_the_rate_and_never_too_thick() -> None:
    widths = [width(rate) for rate in (0, 0.1, 1, 10, 100, 1000, 1e9)]
    assert widths == sorted(widths) and len(set(widths[:6])) == 6
    assert widths[0] == 1.5 and widths[-1] == 14.0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.lists(st.integers(0, 12), max_size=6),
            st.sampled_from(Health),
            st.sampled_from(("edge/a", "edge/b")),
        ),
        max_size=60,
    )
)
def test_nothing_overlaps_and_every_line_ends_at_a_node(made: list[tuple[int, list[int], Health, str]]) -> None:
    by_id = {
        drawn_line.id: drawn_line
        for number, routes, health, gateway in made
        for drawn_line in [
            hop(f"n/s{number}", *(f"n/r{route_number}" for route_number in routes), health=health, gateway=gateway)
        ]
    }
    routes = [
        RouteReport(Key("HTTPRoute", "n", f"r{n}"), ("Gateway edge/a l", "Gateway edge/b l"), ("edge/a", "edge/b"))
        for n in range(13)
    ]
    listeners = [listener("l", "edge/a"), listener("m", "edge/a"), listener("l", "edge/b")]
    for group in drawn(list(by_id.values()), known(routes, listeners)):
        for column in (group.listeners, group.routes, group.rows):
            _check_column(column, group.height)
        ends = {node.middle for node in group.rows}
        middles = {node.middle for node in group.routes}
        starts = {node.middle for node in group.listeners}
        assert all(link.start in middles and link.end in ends for link in group.route_links)
        assert all(link.start in starts and link.end in middles for link in group.listener_links)
        ids = {row_id(node.item) for node in group.rows}
        assert all(set(link.hops) <= ids for link in (*group.route_links, *group.listener_links))


def _check_column(column: Sequence[PlacedItem[Any]], height: int) -> None:
    end = 0
    for number, node in enumerate(column):
        assert node.space >= (GAP if number else 0)
        assert node.y == end + node.space
        end = node.y + node.height
    assert end <= height


@pytest.mark.parametrize(
    ("selector", "height"), [(".listener", LISTENER), (".route", ROUTE), (".row", ROW), (".row.tall", TALL)]
)
def test_the_style_sheet_gives_things_the_heights_that_lines_are_drawn_for(selector: str, height: int) -> None:
    """The first rule of a selector is the one of the columns; narrow screens have rules of their own further down."""
    css = resources.files("lasthop.web").joinpath("static", "page.css").read_text()
    rule = re.search(rf"(?:^|}} ){re.escape(selector)} {{[^}}]*?\bheight: ([0-9.]+)rem;", css, re.MULTILINE)
    assert rule and float(rule[1]) * 16 == height
