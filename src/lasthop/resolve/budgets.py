"""Budgets: how much of a hostname, which routes of several namespaces may share, those of one namespace take.

Whatever is above a limit is left out, the younger routes first, so that no edit of a younger route changes an older one's.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from lasthop.api.meta import Key
from lasthop.plan.limits import Limits, over
from lasthop.plan.problem import unsupported_value
from lasthop.plan.routing import Parent
from lasthop.resolve.profiles import limits
from lasthop.resolve.refusals import JudgedRoute
from lasthop.resolve.routes import RouteVerdict, read_route, verdict
from lasthop.store.graph import Graph, query


class Cost(NamedTuple):
    """What a route takes under each of its hostnames; the value of its entry there."""

    matches: int
    regex_size: int


UNKNOWN = Cost(0, 0)
"""Of a route that cannot be judged: it answers 500, whatever it asks for."""


def cost(judged: JudgedRoute) -> Cost:
    return Cost(judged.matches, judged.regex_size)


@query
def left_out(g: Graph, gateway: Key, table: str, hostname: str) -> frozenset[tuple[Key, str]]:
    """(route, the limit that it would go over) under one hostname. Mostly empty: then only the sums are looked at."""
    allowed = limits(g, gateway)
    taken: dict[str, dict[Key, Cost]] = {}
    for (member,), value in g.bucket("vhost", gateway, table, hostname):
        if isinstance(value, Cost):
            taken.setdefault(member.namespace, {})[member] = value
    found: set[tuple[Key, str]] = set()
    for costs in taken.values():
        if _over(allowed, *map(sum, zip(*costs.values(), strict=True))):
            found |= _youngest(g, costs, allowed)
    return frozenset(found)


def _over(allowed: Limits, matches: int, regex_size: int) -> str:
    if matches > allowed.matches_per_hostname:
        return "matches_per_hostname"
    return "regex_size_per_hostname" if regex_size > allowed.regex_size_per_hostname else ""


def _youngest(g: Graph, costs: dict[Key, Cost], allowed: Limits) -> set[tuple[Key, str]]:
    ages = {route: obj.age for route in costs if (obj := read_route(g, route))}
    found, matches, size = set(), 0, 0
    for route in sorted(ages, key=lambda route: ages[route]):
        more = costs[route]
        if field := _over(allowed, matches + more.matches, size + more.regex_size):
            found.add((route, field))
        else:
            matches, size = matches + more.matches, size + more.regex_size
    return found


def verdict_at(g: Graph, route: Key, parent: Parent) -> RouteVerdict:
    """What is to be said of the route at one parent: what its own text is worth, and what its namespace has left for it."""
    judged = verdict(g, route, parent.gateway, parent.protocols[0])
    cut: dict[str, str] = {}
    for table, hostname in parent.hosts:
        fields = dict(left_out(g, parent.gateway, table, hostname))
        if route in fields:
            cut[hostname] = fields[route]
    if not cut:
        return judged
    names = ", ".join(hostname or "any hostname" for hostname in sorted(cut))
    field = next(iter(cut.values()))
    what = "matches" if field == "matches_per_hostname" else "regular expressions"
    message = (
        f"not served under {names}: with it the routes of namespace {route.namespace} would have too many {what} there; "
        f"{over(limits(g, parent.gateway), field)}"
    )
    problem = unsupported_value(message, "spec.rules")
    nowhere = cut.keys() == {hostname for _, hostname in parent.hosts}
    return replace(judged, left_out=(problem,), all_refused=judged.all_refused or nowhere)
