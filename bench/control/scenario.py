"""One size on a cluster of its own: makes the objects, then everything in order."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

from bench.control import alone, many, objects, side_by_side
from bench.control.edits import Editor
from bench.control.side_by_side import Counts, Figures
from bench.control.systems import System, make_envoy_gateway, make_lasthop
from bench.loading import create
from bench.others import Others
from bench.processes import backend
from bench.rows import Row
from conformance.children import say
from conformance.cluster import Cluster
from conformance.network import NODE_IP
from examples.quickstart.certificates import Issued

OURS, PEER = "bench-lasthop", "bench-envoy-gateway"
PORTS = (28080, 28081)
FOUND = "found.json"
STORM_RATE = 1_000.0
"""Changes of endpoints a second that are attempted."""


async def scenario(cluster: Cluster, arguments: dict[str, Any]) -> int:
    """Writes the rows, and what other processes took, as JSON to `found` in the folder that is given."""
    size: int = arguments["size"]
    began = time.monotonic()

    def progress(text: str) -> None:
        say(f"N={size:,} {time.monotonic() - began:5.0f} s  {text}")

    await cluster.controller_manager.stop()  # nothing here needs it, and it would watch everything
    ca, other = Issued("bench CA"), Issued("another CA")
    Issued("*.bench.example", ca).write(cluster.scratch, "backend")
    with backend(cluster.scratch / "backend.crt", cluster.scratch / "backend.key", NODE_IP) as (_, ports):
        systems = [await make_lasthop(cluster, Path(arguments["home"]), OURS, PORTS[0])]
        await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OURS}}])
        if arguments["peer"]:
            systems.append(await make_envoy_gateway(cluster, PEER, PORTS[1]))
        for system in systems:
            progress(f"creating objects for {system.name}")
            await _load(cluster, system, size, ports[0], ca)
        editors = [Editor(cluster, system, size, ports, lambda: objects.edition(ca), other.pem.decode()) for system in systems]
        others = Others()
        figures = Figures(size, systems[-1].name)
        rows = await _measure(cluster, editors, arguments, figures, progress)
        for editor in editors:
            await editor.system.stop()
    found = {"rows": [row.__dict__ for row in rows], "others": others.cores()}
    (Path(arguments["home"]) / FOUND).write_text(json.dumps(found))
    return 0


async def _measure(
    cluster: Cluster, editors: list[Editor], arguments: dict[str, Any], figures: Figures, say: Any
) -> list[Row]:
    counts = Counts(arguments["edits"], arguments["peer_edits"])
    await side_by_side.starts(editors, figures, say, restart=False)
    await side_by_side.starts(editors, figures, say, restart=True)
    await asyncio.to_thread(side_by_side.edits, editors, counts, figures, say)
    await asyncio.to_thread(side_by_side.bursts, editors, figures, say)
    await asyncio.to_thread(side_by_side.shared, editors, min(100, editors[0].size), figures, say)
    for editor in editors[1:]:
        await editor.system.stop()
    await asyncio.to_thread(alone.measure, editors[0], figures, say)
    socket = Path(arguments["home"]) / "run" / "controller" / "xds.sock"
    await asyncio.to_thread(many.proxies, editors[0], socket, figures, say)
    await asyncio.to_thread(many.storm, cluster, editors[0], STORM_RATE, arguments["storm"], figures, say)
    return figures.rows()


async def _load(cluster: Cluster, system: System, size: int, port: int, ca: Issued) -> None:
    shared = [f"shared-{count}" for count in {min(100, size), size}]
    maps = [objects.config_map(system.namespace, name, objects.edition(ca)) for name in (*shared, "nobody")]
    sets = (objects.policy_set(system.namespace, number, port, ca) for number in range(size))
    await create(cluster.api, itertools.chain([system.gateway], maps, itertools.chain.from_iterable(sets)))
