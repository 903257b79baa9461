"""When a controller settles, and how much at once: an urgent edit waits neither for route tables nor for a backlog."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from lasthop.edge.slices import wait_for
from lasthop.run.controller import Controller
from lasthop.run.stalls import Stalls

TICK: Final = 1.0
"""Seconds between two looks at the clock and the system's trust store, unless a deadline is nearer."""
SLICE: Final = 40
"""Members of each output that are computed before the next event is looked at: some 20 ms, so that an edit of one policy
does not wait for a CA that thousands share."""
FEW: Final = 10
"""The same while clusters still wait for their turn: a CA that thousands share is in force before the last of their statuses
is told. Owners take turns in these few as well, so a neighbour's edit does not wait for them."""
LOOK: Final = 0.002
LOOKS: Final = 500
PROOF: Final = 0.02
"""Seconds between two looks while an edit waits for a proof; its arrival ends the wait."""
TALK: Final = 20
"""How many of these looks may go by while proxies only talk."""


async def run(controller: Controller) -> None:
    """Reads and settles until it is cancelled. What is settled goes out once the server is open."""
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
        if controller.settle_urgent(SLICE):
            await asyncio.sleep(0)  # it is on its way before route tables, which may have megabytes, are put together
        controller.settle(FEW if controller.engine.urgent else SLICE)
        if controller.engine.unsettled_but(controller.busy()):
            controller.dirty.set()
            await _until_sent(controller)
        if controller.proving:
            controller.dirty.set()
            controller.arrived.clear()
            await wait_for(controller.arrived, PROOF)


async def _until_sent(controller: Controller) -> None:
    """Waits until what there is has gone out before more is computed: the latest goes first, so a backlog built ahead of its
    sending would only push an urgent edit back. And until proxies have nothing to say for a moment: each cluster takes several
    messages, and with a slice between two of them it would be in force much later. A new batch ends the wait, and so does
    time, where a proxy does not answer, or many do not stop."""
    controller.arrived.clear()
    await asyncio.sleep(0)
    server = controller.server
    for look in range(LOOKS):
        heard = server.heard
        if controller.arrived.is_set() or not (server.behind or (server.expecting and look < TALK)):
            return
        await wait_for(controller.arrived, LOOK)
        if heard == server.heard and not server.behind:
            return


async def _tick(controller: Controller) -> None:
    while True:
        deadline = controller.engine.graph.next_deadline()
        wait = TICK if deadline is None else deadline - time.time()
        await asyncio.sleep(min(TICK, max(0.0, wait)))
        controller.tick()


async def _watch(controller: Controller) -> None:
    """Reports when this event loop is held up. What is read at the start is computed at once."""
    await controller.loaded.wait()
    await Stalls(controller.metrics, controller.log).watch()
