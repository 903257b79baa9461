"""Ports of the host: conflicts between Gateways, and the results of bind attempts."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, joined, pending
from lasthop.engine.resolve.gateways.gateways import gateway, port_holder
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Input


class BindResult(msgspec.Struct, frozen=True):
    """The result of an attempt to bind an address and port. Without a problem, the port is free or already ours."""

    problem: str = ""
    remedy: str = ""


BIND_RESULT: Final = Input[Key, str, int, str, BindResult]("bind-result")
"""The result by Gateway, address, port and transport. A port without a result is not served yet."""


@query
def port_problem(g: Graph, key: Key, port: int, transport: str) -> Problem | None:
    """Returns why a Gateway cannot serve a port of this host; Pending before the first attempt."""
    owner = gateway(g, key)
    if owner is None or not settings(g).host_network:
        return None
    holder = port_holder(g, key, port, transport)
    if holder:
        message = f"port {port} belongs to {holder}, which is older, or as old and first by name"
        return Problem(reasons.ADDRESS_NOT_USABLE, message, remedy="use another port or address", about=(holder,))
    for address in owner.addresses:
        result = BIND_RESULT.of(g, key, address, port, transport)
        if result is None:
            return pending(f"{address}:{port} has not been tried yet")
        if result.problem:
            return Problem(reasons.ADDRESS_NOT_USABLE, result.problem, remedy=result.remedy)
    return None


@query
def serves_nothing(g: Graph, key: Key) -> Problem | None:
    """Returns why no client can reach a Gateway, independent of its proxy; None if some listener can be served."""
    owner, reason = gateway(g, key), reasons.PARENT_NOT_PROGRAMMED
    if owner is None:
        return None
    if owner.accepted.problem:
        return owner.accepted.problem.within(f"{key} is not accepted", key, reason=reason)
    ports = sorted({(listener.port, listener.transport) for listener in owner.listeners if listener.served})
    if not ports:
        return Problem(reason, f"{key} has no listener that can be served", about=(key,))
    problems = filter(None, (port_problem(g, key, *port) for port in ports))
    blocked = [problem for problem in problems if problem.reason != reasons.PENDING]
    return joined(blocked).within(f"{key} serves no port", key, reason=reason) if len(blocked) == len(ports) else None
