"""Findings on backends to which connections fail, as observed by proxies."""

from __future__ import annotations

from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.messages import probe_command
from lasthop.engine.plan.problem import Problem


def backend_failing(key: Key, gateway: Key, problem: Problem) -> Finding:
    """Returns the finding on the object that decides the connection to a backend."""
    remedy = f"See which check fails with: {probe_command(key)}"
    if key.kind in SERVICE_GROUPS and problem.reason == reasons.REQUESTS_FAILED:
        remedy = "Check the backend's log: it may serve TLS or another protocol."
    elif key.kind in SERVICE_GROUPS:
        remedy = "Start the backend, or correct the addresses and ports of its EndpointSlice."
    return make_finding(
        key, reasons.BACKEND_FAILING, f"at {gateway}: {problem.message}.", remedy, about=(gateway, *problem.about)
    )
