"""Decides when a controller settles, and how much at once: an urgent edit waits neither for route tables nor for a backlog."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from lasthop.edge.slices import wait_for
from lasthop.run.controller import Controller
from lasthop.run.stalls import Stalls

TICK: Final = 1.0
"""Maximum seconds between two ticks, unless a deadline is nearer."""
SLICE: Final = 40
"""Members of each output that are computed before the next event is processed. They take some 20 ms, so that an edit of one
policy does not wait for a CA that thousands share."""
URGENT_SLICE: Final = 100
"""The same limit for clusters, endpoints and secrets: a CA that a hundred policies share is sent in one turn, unless that
exceeds the time limit of a turn (`controller.TURN`)."""
REST_SLICE: Final = 10
"""The same limit for everything else while clusters wait for their turn: a shared CA is in force before the last of its
statuses is written. Owners take turns in these few as well, so a neighbour's edit does not wait for them."""
SENT_POLL_SECONDS: Final = 0.002
MAX_SENT_POLLS: Final = 500
PROOF_POLL_SECONDS: Final = 0.02
"""Seconds between two checks while an edit waits for a proof, whose arrival ends the wait."""
MAX_TALKING_POLLS: Final = 20
"""Maximum polls while proxies only answer."""


async def run(controller: Controller) -> None:
    """Reads and settles until cancelled. The result is sent once the server is open."""
    async with asyncio.TaskGroup() as tasks:
        for work in (_read, _settle_when_dirty, _tick, _watch):
            tasks.create_task(work(controller))


async def _read(controller: Controller) -> None:
    async for batch in controller.source.batches():
        controller.take(batch)


async def _settle_when_dirty(controller: Controller) -> None:
    # The first batch is settled when it is taken. Before it, every hop that an earlier process knew would seem to be gone.
    await controller.loaded.wait()
    while True:
        await controller.dirty.wait()
        if controller.settle_urgent(URGENT_SLICE):
            await asyncio.sleep(0)  # it is sent before route tables, which may have megabytes, are built
        controller.settle(REST_SLICE if controller.engine.urgent else SLICE)
        if controller.engine.unsettled_but(controller.busy()):
            controller.dirty.set()
            await _until_sent(controller)
        if controller.proving:
            controller.dirty.set()
            controller.arrived.clear()
            await wait_for(controller.arrived, PROOF_POLL_SECONDS)


async def _until_sent(controller: Controller) -> None:
    """Waits until all resources are sent before more are computed. The latest goes first, so a backlog built before it can be
    sent would only delay an urgent edit. It also waits until proxies are silent for a moment: each cluster takes several
    messages, and computing a slice between two of them would delay it. A new batch ends the wait, as does time if a proxy does
    not answer or many keep answering."""
    controller.arrived.clear()
    await asyncio.sleep(0)
    server = controller.server
    for poll in range(MAX_SENT_POLLS):
        heard = server.heard
        if controller.arrived.is_set() or not (server.behind or (server.expecting and poll < MAX_TALKING_POLLS)):
            return
        await wait_for(controller.arrived, SENT_POLL_SECONDS)
        if heard == server.heard and not server.behind:
            return


async def _tick(controller: Controller) -> None:
    while True:
        deadline = controller.engine.graph.next_deadline()
        wait = TICK if deadline is None else deadline - time.time()
        await asyncio.sleep(min(TICK, max(0.0, wait)))
        controller.tick()


async def _watch(controller: Controller) -> None:
    """Reports a stalled event loop. The initial state is computed at once, so it does not count."""
    await controller.loaded.wait()
    await Stalls(controller.metrics, controller.log).watch()
