"""Findings: backends that connections fail to, as proxies have seen it."""

from __future__ import annotations

from lasthop.api.kinds import SERVICE_GROUPS
from lasthop.api.meta import Key
from lasthop.plan import reasons
from lasthop.plan.finding import Finding
from lasthop.plan.messages import probe_command
from lasthop.plan.problem import Problem


def backend_failing(key: Key, gateway: Key, problem: Problem) -> Finding:
    """Returns the finding on the object that decides how a backend is connected to."""
    remedy = f"See which check fails with: {probe_command(key)}"
    if key.kind in SERVICE_GROUPS:
        remedy = "Start the backend, or correct the addresses and ports of its EndpointSlice."
    return Finding(key, reasons.BACKEND_FAILING, f"at {gateway}: {problem.message}.", remedy, about=(gateway, *problem.about))
