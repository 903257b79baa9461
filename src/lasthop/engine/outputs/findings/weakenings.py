"""Findings on backends with weakened verification: a policy was deleted, its target or the port renamed, its trust replaced.

The spec requires plaintext without a policy, which is rarely the intent of the edit.
"""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.reasons import NO_LONGER_VERIFIED
from lasthop.engine.plan.verdict import Weakening
from lasthop.engine.resolve.hops.weakening import WEAKENED_PORTS, WEAKENED_ROUTES, port_weakening
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output


@query
def weakening_findings(g: Graph, route: Key, gateway: Key) -> tuple[Finding, ...]:
    """Reports weakenings on the route, whose requests they expose. Several Gateways may report the same weakening."""
    found = dict.fromkeys(WEAKENED_ROUTES.of(g, route, gateway))
    return tuple(_finding(route, each) for each in found)


def _finding(route: Key, found: Weakening) -> Finding:
    about = (found.backend, found.policy) if found.policy else (found.backend,)
    return make_finding(route, NO_LONGER_VERIFIED, f"{found.message}.", found.remedy, about=about)


WEAKENINGS = Output("findings-weakenings", WEAKENED_ROUTES, weakening_findings)
WEAKENED_BACKENDS = Output("weakened-backends", WEAKENED_PORTS, port_weakening)
"""Weakenings by Gateway, backend and port."""
