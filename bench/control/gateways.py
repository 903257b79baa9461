"""Measures many Gateways on one controller, each with its own Envoy and policies: the cost of one more proxy."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from bench.control import objects
from bench.control.edits import Editor, Seen
from bench.control.ground import ground
from bench.control.scenario import OURS
from bench.control.side_by_side import Figures, Say, median_ms
from bench.control.systems import make_lasthop
from bench.loading import create
from conformance import lasthop
from conformance.cluster import Cluster

FIRST_PORT = 28100
EDITED = 5
"""Gateways that are edited, spread over all."""


async def scenario(cluster: Cluster, arguments: dict[str, Any]) -> int:
    count, policies = arguments["gateways"], arguments["policies"]
    async with ground(cluster, arguments["home"], f"{count} x {policies}") as place:
        system = await make_lasthop(cluster, place.home, OURS, FIRST_PORT)
        place.say("creating objects")
        ports = range(FIRST_PORT, FIRST_PORT + count)
        made = (objects.gateway(OURS, f"web-{port}", lasthop.GATEWAY_CLASS, port) for port in ports)
        sets = (
            objects.policy_set(OURS, number, place.ports[0], place.ca, f"web-{ports[number // policies]}")
            for number in range(count * policies)
        )
        await create(cluster.api, itertools.chain(made, itertools.chain.from_iterable(sets)))
        figures = Figures(count * policies, "")
        what = f"{count} Gateways x {policies} policies"
        editors = [
            Editor(cluster, system, policies, place.ports, place.fitting, place.other_ca, listen=port) for port in ports
        ]
        with place.keeping(figures):
            place.say("start")
            await system.start()
            await asyncio.to_thread(_measure, editors, what, figures, place.say)
        await system.stop()
    return 0


def _measure(editors: list[Editor], what: str, figures: Figures, say: Say) -> None:
    count, policies, system = len(editors), editors[0].size, editors[0].system
    served = [
        editor.serves([first, first + policies - 1])
        for first, editor in zip(range(0, count * policies, policies), editors, strict=True)
    ]
    figures.add(f"{what}: start effective", "s", max(served) - system.started)
    editors[0].quiet()
    figures.add(f"{what}: controller CPU for each proxy", "s", system.cpu() / count)
    figures.add(f"{what}: controller RSS for each proxy", "MiB", system.memory() / count)
    figures.add(f"{what}: Envoy RSS", "MiB", system.envoy_memory() / count)
    say("edits")
    seen = Seen()
    for number in range(0, count, max(1, count // EDITED)):
        editors[number].rest(1)
        editors[number].timed(editors[number].policy, number * policies, seen)
    figures.add(f"{what}: policy edit effective", "ms", median_ms(seen.effective))
    figures.add(f"{what}: policy edit, controller CPU", "ms", median_ms(seen.cpu))
