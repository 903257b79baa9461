"""Selects the cases that a gateway claims, and runs them concurrently."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lasthop_judge.model import Case, CaseVerdict, Outcome
from lasthop_judge.objects import RunSettings
from lasthop_judge.trial import Patience, Testbed, Trial

AT_ONCE: Final = 24

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class CaseSelection:
    cases: tuple[Case, ...]
    """To be tried."""
    left_out: tuple[CaseVerdict, ...]


def choose(cases: Sequence[Case], claimed: Collection[str] | None, settings: RunSettings) -> CaseSelection:
    """`claimed` are the features of the GatewayClass; None: they are not known, and every one counts as claimed."""
    tried, left_out = [], []
    for case in cases:
        missing = [] if claimed is None else [name for name in case.needs if name not in claimed]
        if missing:
            left_out.append(CaseVerdict(case, Outcome.NOT_CLAIMED, why=f"feature {missing[0]} is not claimed"))
        elif not settings.supports(case):
            why = f"adapter {settings.adapter.name} cannot write this"
            left_out.append(CaseVerdict(case, Outcome.NOT_RUN, why=why))
        else:
            tried.append(case)
    return CaseSelection(tuple(tried), tuple(left_out))


async def judge(
    testbed: Testbed, settings: RunSettings, chosen: CaseSelection, patience: Patience, progress: Progress
) -> list[CaseVerdict]:
    """Returns the verdicts in the order of the cases. The objects already exist."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    turns, done = asyncio.Semaphore(AT_ONCE), 0

    async def tried(case: Case) -> CaseVerdict:
        nonlocal done
        async with turns:
            verdict = await Trial(testbed, settings, case, patience).run()
        done += 1
        progress("Judging", done, len(chosen.cases))
        return verdict

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(tried(case)) for case in chosen.cases]
    return [*(task.result() for task in running), *chosen.left_out]
