"""ListenerSets: whether their Gateway allows them, and the plan of their listeners."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import failed, true
from lasthop.engine.plan.limits import over
from lasthop.engine.plan.listener import ListenerSetPlan, RouteParent
from lasthop.engine.plan.problem import Problem, internal_error, listeners_not_valid
from lasthop.engine.resolve.gateways.allowed_listeners import allows_set, parent_gateway
from lasthop.engine.resolve.gateways.gateways import gateway_accepted
from lasthop.engine.resolve.gateways.listeners import listeners_by_owner, own_listeners
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer


@query
def listener_set(g: Graph, key: Key) -> ListenerSetPlan | None:
    """Returns the plan of a ListenerSet; None if another controller serves its Gateway."""
    parent = parent_gateway(g, key)
    accepted = gateway_accepted(g, parent) if parent else None
    if parent is None or accepted is None:
        return None
    set_listeners = listeners_by_owner(g, parent).get(key)
    if set_listeners is None:
        message = f"allowedListeners of {parent} does not allow ListenerSets of namespace {key.namespace}"
        if allows_set(g, parent, key.namespace):
            limit = over(limits(g, parent), "listeners_per_namespace")
            message = f"the ListenerSets of namespace {key.namespace} have too many listeners at {parent}: {limit}"
        return ListenerSetPlan(
            key, parent, (), failed(reasons.ACCEPTED, Problem(reasons.NOT_ALLOWED, message, about=(parent,)))
        )
    if isinstance(own_listeners.attempt(g, key), Crash):
        return ListenerSetPlan(key, parent, set_listeners, failed(reasons.ACCEPTED, internal_error()))
    invalid_names = [listener.name for listener in set_listeners if not all(c.status for c in listener.conditions)]
    invalid = listeners_not_valid(invalid_names)
    if not any(listener.served for listener in set_listeners):
        return ListenerSetPlan(key, parent, set_listeners, failed(reasons.ACCEPTED, invalid))
    if accepted.problem:
        refused = accepted.problem.within(f"{parent} is not accepted", parent, reason=reasons.PARENT_NOT_ACCEPTED)
        return ListenerSetPlan(key, parent, set_listeners, failed(reasons.ACCEPTED, refused))
    return ListenerSetPlan(
        key, parent, set_listeners, true(reasons.ACCEPTED, invalid.text, invalid.reason if invalid_names else "")
    )


@query
def route_parent(g: Graph, key: Key) -> RouteParent | None:
    """Returns a Gateway or ListenerSet as a parent of routes; None if another controller serves it."""
    if key.kind == "Gateway":
        return RouteParent(key, key, listeners_by_owner(g, key)[key]) if gateway_accepted(g, key) else None
    plan = listener_set(g, key)
    if plan is None:
        return None
    refused = plan.accepted.reason == reasons.NOT_ALLOWED
    return RouteParent(key, plan.gateway, plan.listeners, plan.accepted.problem if refused else None)


ACCEPTED_SETS = Index[Key, Key]("accepted-set")
"""Accepted ListenerSets by Gateway, which its status counts."""


@indexer("ListenerSet")
def index_accepted_sets(g: Graph, key: Key) -> Iterator[Entry]:
    plan = listener_set(g, key)
    if plan and plan.accepted.status:
        yield ACCEPTED_SETS.entry((plan.gateway,), key)
