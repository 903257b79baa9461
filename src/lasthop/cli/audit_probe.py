"""Tries the backends that have had no traffic, for `lasthop audit --probe`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.base.api.meta import Key
from lasthop.cli.views.command_view import View
from lasthop.edge.probe.observed import observed
from lasthop.edge.probe.result import TargetResult
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.observation import Health
from lasthop.engine.plan.strength import Strength


async def with_probes(view: View, hops: Iterable[HopReport], now: float) -> tuple[HopReport, ...]:
    """Returns the hops; those of which nothing is known have been tried. Each object is probed once."""
    results: dict[Key, dict[tuple[str, str, int], TargetResult]] = {}
    found = []
    for hop in hops:
        untried = hop.observed is None or hop.observed.health is Health.UNTRIED
        if untried and hop.in_effect not in (None, Strength.PLAINTEXT):
            key = hop.policy or hop.backend
            if key not in results:
                probed = await view.probe(key, "")
                results[key] = {(each.gateway, each.service, each.port): each for each in probed.used}
            tried = results[key].get((hop.gateway.path, str(hop.backend), hop.port))
            hop = msgspec.structs.replace(hop, observed=observed(tried, now)) if tried else hop
        found.append(hop)
    return tuple(found)
