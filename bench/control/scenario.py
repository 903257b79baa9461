"""Measures one size on a cluster of its own: creates the objects, then runs all measurements in order."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from bench.control import alone, fleet, objects, side_by_side
from bench.control.edits import Editor
from bench.control.ground import Ground, ground
from bench.control.side_by_side import Counts, Figures
from bench.control.systems import System, make_envoy_gateway, make_lasthop
from bench.loading import create
from conformance.cluster import Cluster

OURS, PEER = "bench-lasthop", "bench-envoy-gateway"
PORTS = (28080, 28081)
PEER_EDITS = 3
"""Edits of CAs and endpoints of the peer: each takes it seconds of CPU with 5,000 policies."""
PROXIES_UP_TO = 1_000
"""Policies. The simulated proxies run on the same machine, and each of them takes everything."""


async def scenario(cluster: Cluster, arguments: dict[str, Any]) -> int:
    """Both systems with `size` policies each. Earlier figures survive a later failure."""
    size: int = arguments["size"]
    async with ground(cluster, arguments["home"], f"N={size:,}") as place:
        systems = [await make_lasthop(cluster, place.home, OURS, PORTS[0])]
        if arguments["peer"]:
            systems.append(await make_envoy_gateway(cluster, PEER, PORTS[1]))
        for system in systems:
            place.say(f"creating objects for {system.name}")
            await _load(cluster, system, size, place)
        editors = [Editor(cluster, system, size, place.ports, place.fitting, place.other_ca) for system in systems]
        figures = Figures(size, systems[-1].name)
        with place.keeping(figures):
            await _measure(editors, arguments, figures, place)
        for editor in editors:
            await editor.system.stop()
    return 0


async def _measure(editors: list[Editor], arguments: dict[str, Any], figures: Figures, place: Ground) -> None:
    say, size = place.say, editors[0].size
    counts = Counts(arguments["edits"], arguments["peer_edits"], max(PEER_EDITS, arguments["peer_edits"]))
    if arguments["growth"]:
        await side_by_side.starts(editors, figures, say, restart=False, keep=True)
        await asyncio.to_thread(side_by_side.policy_edits, editors[0], counts, figures, say)
        return
    await side_by_side.starts(editors, figures, say, restart=False)
    await side_by_side.starts(editors, figures, say, restart=True)
    await asyncio.to_thread(side_by_side.edits, editors, counts, figures, say)
    await asyncio.to_thread(side_by_side.bursts, editors, figures, say)
    await asyncio.to_thread(side_by_side.shared, editors, min(100, size), figures, say)
    for editor in editors[1:]:
        await editor.system.stop()
    await asyncio.to_thread(alone.measure, editors[0], figures, say)
    if size <= PROXIES_UP_TO:
        socket = place.home / "run" / "controller" / "xds.sock"
        await asyncio.to_thread(fleet.proxies, editors[0], socket, figures, say)


async def _load(cluster: Cluster, system: System, size: int, place: Ground) -> None:
    shared = [f"shared-{count}" for count in {min(100, size), size}]
    maps = [objects.config_map(system.namespace, name, place.fitting()) for name in (*shared, "nobody")]
    sets = (objects.policy_set(system.namespace, number, place.ports[0], place.ca) for number in range(size))
    await create(cluster.api, itertools.chain([system.gateway], maps, itertools.chain.from_iterable(sets)))
