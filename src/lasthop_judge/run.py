"""Chooses the cases that a gateway claims, and tries them side by side."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lasthop_judge.model import Case, Outcome, Verdict
from lasthop_judge.objects import Site
from lasthop_judge.trial import Patience, Place, Trial

AT_ONCE: Final = 24

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Chosen:
    cases: tuple[Case, ...]
    """To be tried."""
    left_out: tuple[Verdict, ...]


def choose(cases: Sequence[Case], claimed: Collection[str] | None, site: Site) -> Chosen:
    """`claimed` are the features of the GatewayClass; None: they are not known, and every one counts as claimed."""
    tried, left_out = [], []
    for case in cases:
        missing = [] if claimed is None else [name for name in case.needs if name not in claimed]
        if missing:
            left_out.append(Verdict(case, Outcome.NOT_CLAIMED, why=f"feature {missing[0]} is not claimed"))
        elif not site.spellable(case):
            why = f"adapter {site.adapter.name} does not say how to write this"
            left_out.append(Verdict(case, Outcome.NOT_RUN, why=why))
        else:
            tried.append(case)
    return Chosen(tuple(tried), tuple(left_out))


async def judge(place: Place, site: Site, chosen: Chosen, patience: Patience, progress: Progress) -> list[Verdict]:
    """Returns the verdicts in the order of the cases; the objects are in place."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    turns, done = asyncio.Semaphore(AT_ONCE), 0

    async def tried(case: Case) -> Verdict:
        nonlocal done
        async with turns:
            verdict = await Trial(place, site, case, patience).run()
        done += 1
        progress("Judging", done, len(chosen.cases))
        return verdict

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(tried(case)) for case in chosen.cases]
    return [*(task.result() for task in running), *chosen.left_out]
