"""Backends that are verified less than they were: a policy was deleted, its target or the port renamed, its trust replaced.

The spec requires plaintext where no policy applies, and that is rarely what the author of the last edit wants.
"""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.reasons import NO_LONGER_VERIFIED
from lasthop.engine.plan.verification import Weakening
from lasthop.engine.resolve.backends.reach import AFFECTED_ROUTES, weakenings
from lasthop.engine.resolve.hops.verification import WEAKENED_PORTS, port_weakening
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output


@query
def weakening_findings(g: Graph, route: Key, gateway: Key) -> tuple[Finding, ...]:
    """Reports it on the route, whose requests are what is sent there. Several Gateways say the same of one route."""
    found = dict.fromkeys(weakenings(g, route, gateway))
    return tuple(_finding(route, each) for each in found)


def _finding(route: Key, found: Weakening) -> Finding:
    about = (found.backend, found.policy) if found.policy else (found.backend,)
    return Finding(route, NO_LONGER_VERIFIED, f"{found.message}.", found.remedy, about=about)


WEAKENINGS = Output("findings-weakenings", AFFECTED_ROUTES, weakening_findings)
WEAKENED_BACKENDS = Output("weakened-backends", WEAKENED_PORTS, port_weakening)
"""By Gateway, backend and port."""
