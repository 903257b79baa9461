"""Budgets: limits how much of a shared hostname the routes of one namespace may use.

Above a limit, the youngest routes are omitted, so that no edit of a younger route changes an older one.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from lasthop.base.api.meta import Key
from lasthop.engine.plan.limits import Limits, over
from lasthop.engine.plan.problem import unsupported_value
from lasthop.engine.plan.routing import Parent
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.routing.routes import RouteVerdict, read_route, verdict
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Index


class RouteCost(NamedTuple):
    """The cost of a route under each of its hostnames."""

    route: Key
    matches: int = 0
    """Zero for a route whose query crashed: it returns 500."""
    regex_size: int = 0


VIRTUAL_HOSTS = Index[Key, str, str, RouteCost | frozenset[str] | None]("vhost")
"""The routes of each hostname by Gateway, route table and hostname. None stands for a listener's own hostname; the key
MISDIRECTED has the misdirected names."""


@query
def left_out(g: Graph, gateway: Key, table: str, hostname: str) -> frozenset[tuple[Key, str]]:
    """Returns (route, exceeded limit) under one hostname. In most cases no limit is exceeded, and only sums are computed."""
    allowed = limits(g, gateway)
    all_costs = [cost for cost in VIRTUAL_HOSTS.of(g, gateway, table, hostname) if isinstance(cost, RouteCost)]
    if not _over(allowed, *_sums(all_costs)):
        return frozenset()
    taken: dict[str, list[RouteCost]] = {}
    for route_cost in all_costs:
        taken.setdefault(route_cost.route.namespace, []).append(route_cost)
    excluded: set[tuple[Key, str]] = set()
    for costs in taken.values():
        if _over(allowed, *_sums(costs)):
            excluded |= _youngest(g, costs, allowed)
    return frozenset(excluded)


def _sums(costs: list[RouteCost]) -> tuple[int, int]:
    return sum(cost.matches for cost in costs), sum(cost.regex_size for cost in costs)


def _over(allowed: Limits, matches: int, regex_size: int) -> str:
    if matches > allowed.matches_per_hostname:
        return "matches_per_hostname"
    return "regex_size_per_hostname" if regex_size > allowed.regex_size_per_hostname else ""


def _youngest(g: Graph, costs: list[RouteCost], allowed: Limits) -> set[tuple[Key, str]]:
    aged = sorted((obj.age, cost) for cost in costs if (obj := read_route(g, cost.route)))
    excluded, matches, size = set(), 0, 0
    for _, next_cost in aged:
        if field := _over(allowed, matches + next_cost.matches, size + next_cost.regex_size):
            excluded.add((next_cost.route, field))
        else:
            matches, size = matches + next_cost.matches, size + next_cost.regex_size
    return excluded


def verdict_at(g: Graph, route: Key, parent: Parent) -> RouteVerdict:
    """Returns the verdict on a route at one parent, by its spec and by the budget of its namespace."""
    judged = verdict(g, route, parent.gateway, parent.protocols[0])
    cut: dict[str, str] = {}
    for table, hostname in parent.hosts:
        for excluded_route, field in left_out(g, parent.gateway, table, hostname):
            if excluded_route == route:
                cut[hostname] = field
    if not cut:
        return judged
    names = ", ".join(hostname or "any hostname" for hostname in sorted(cut))
    field = next(iter(cut.values()))
    subject = "matches" if field == "matches_per_hostname" else "regular expressions"
    message = (
        f"not served under {names}: the routes of namespace {route.namespace} have too many {subject} there; "
        f"{over(limits(g, parent.gateway), field)}"
    )
    problem = unsupported_value(message, "spec.rules")
    nowhere = cut.keys() == {hostname for _, hostname in parent.hosts}
    return replace(judged, left_out=(problem,), all_refused=judged.all_refused or nowhere)
