"""Status of ListenerSets."""

from __future__ import annotations

from lasthop.base.api import gateway as api
from lasthop.base.api.meta import Key
from lasthop.base.api.status import ListenerSetStatus
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.outputs.status.gateways import programmed
from lasthop.engine.outputs.status.listeners import listener_programmed, listener_status
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.listener import ListenerSet
from lasthop.engine.resolve.gateways.listener_sets import listener_set
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read


@query
def listener_set_status(g: Graph, key: Key) -> ListenerSetStatus | None:
    obj, found = read(g, key, api.ListenerSet), listener_set(g, key)
    if obj is None or found is None:
        return None
    listeners = tuple(listener_status(g, found.gateway, listener, obj) for listener in found.listeners)
    return ListenerSetStatus(stated(set_conditions(g, found), obj), listeners)


def set_conditions(g: Graph, found: ListenerSet) -> tuple[Condition, ...]:
    return found.accepted, _programmed(g, found)


def _programmed(g: Graph, found: ListenerSet) -> Condition:
    """Returns True as soon as the Gateway's proxy serves one of its listeners as it is written now."""
    accepted = found.accepted
    if problem := accepted.problem:
        of_parent = problem.reason == reasons.PARENT_NOT_ACCEPTED
        return failed(reasons.PROGRAMMED, problem.with_reason(reasons.PARENT_NOT_PROGRAMMED) if of_parent else problem)
    if problem := programmed(g, found.gateway).problem:
        reason = reasons.PENDING if problem.reason == reasons.PENDING else reasons.PARENT_NOT_PROGRAMMED
        where = f"{found.gateway} is not programmed"
        return failed(reasons.PROGRAMMED, problem.within(where, found.gateway, reason=reason))
    served = [listener_programmed(g, found.gateway, listener) for listener in found.listeners if listener.served]
    if any(condition.status for condition in served):
        return true(reasons.PROGRAMMED)
    return served[0]


LISTENER_SET_STATUS = Output("status-listener-sets", "ListenerSet", listener_set_status)
