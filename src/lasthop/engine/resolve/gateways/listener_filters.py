"""Filters of listeners: ExternalAuth servers that authorize every request before a route is chosen.

No request may bypass such a filter. An unsupported filter, or one whose server reference is not permitted, closes the
listener. If the server cannot be reached, requests get 503, as with filters of routes."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api.meta import Key
from lasthop.engine.plan.listener import MAX_AUTH
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.routing import ExternalAuth
from lasthop.engine.plan.upstream import Hop
from lasthop.engine.resolve.backends.backends import BackendTarget, target
from lasthop.engine.resolve.gateways.profiles import limits
from lasthop.engine.resolve.routing.external_auth import PROTOCOLS, external_auth, problems
from lasthop.engine.store.graph import Graph

EXTERNAL_AUTH: Final = "ExternalAuth"


class ListenerFilterPlan(msgspec.Struct, frozen=True):
    auth: tuple[ExternalAuth, ...] = ()
    """The servers to call, in this order."""
    refused: Problem | None = None
    """The problem of an unsupported filter."""
    unresolved: Problem | None = None
    """The problem of a server reference."""


def listener_filters(g: Graph, gateway: Key, owner: Key, listener: api.Listener) -> ListenerFilterPlan:
    """Returns the filters of a listener. `owner` is its Gateway or ListenerSet, whose references need grants."""
    found: list[ExternalAuth] = []
    if len(listener.filters.requests) > MAX_AUTH:
        message = f"filters.requests: {len(listener.filters.requests)} filters, of which at most {MAX_AUTH} are supported"
        return ListenerFilterPlan(refused=unsupported_value(f"{message}, so the listener is closed", remedy="use fewer"))
    for number, each in enumerate(listener.filters.requests):
        field = f"filters.requests[{number}]"
        wanted = each.external_auth
        if each.type != EXTERNAL_AUTH or wanted is None:
            message = f"{field}: a filter of type {each.type} is not supported for listeners, so the listener is closed"
            return ListenerFilterPlan(refused=unsupported_value(message, remedy=f"use {EXTERNAL_AUTH}, or remove it"))
        if odd := next(problems(wanted, f"{field}.externalAuth", limits(g, gateway)), None):
            return ListenerFilterPlan(refused=unsupported_value(f"{odd}, so the listener is closed"))
        to = target(g, owner, wanted.backend_ref)
        if not isinstance(to, BackendTarget):
            return ListenerFilterPlan(unresolved=to.within(f"{field}.externalAuth.backendRef"))
        found.append(external_auth(wanted, Hop(gateway, to.backend, to.port, PROTOCOLS[wanted.protocol])))
    return ListenerFilterPlan(tuple(found))
