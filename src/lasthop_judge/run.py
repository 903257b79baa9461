"""Selects the cases that a gateway claims, and runs them concurrently."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lasthop_judge.cases import ALL
from lasthop_judge.model import Case, CaseVerdict, Expected, GatewayRole, Outcome, RouteType
from lasthop_judge.objects import RunSettings
from lasthop_judge.trial import Patience, Testbed, Trial

AT_ONCE: Final = 24

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class CaseSelection:
    cases: tuple[Case, ...]
    """The cases to run."""
    left_out: tuple[CaseVerdict, ...]


def with_controls(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Adds a case with a valid certificate for each kind of route and Gateway that has only cases of refusals."""
    missing = {_control_key(case) for case in cases if case.only_refuses}
    missing -= {_control_key(case) for case in cases if _is_control(case)}
    controls = {_control_key(case): case for case in reversed(ALL) if _is_control(case)}
    return (*cases, *(case for key, case in controls.items() if key in missing))


def _is_control(case: Case) -> bool:
    return case.expect is Expected.PASSES and not case.optional


def _control_key(case: Case) -> tuple[RouteType, GatewayRole]:
    return case.via, case.role


def _without_unproven(verdicts: Sequence[CaseVerdict]) -> list[CaseVerdict]:
    """Withdraws refusals that prove nothing: a gateway that refuses valid certificates too has verified nothing."""
    accepting = {_control_key(verdict.case) for verdict in verdicts if _is_control(verdict.case) and verdict.accepted}
    return [
        dataclasses.replace(verdict, outcome=Outcome.NOT_RUN, why=_proves_nothing(verdict.case), unserved=True)
        if verdict.outcome is Outcome.PASS and verdict.case.only_refuses and _control_key(verdict.case) not in accepting
        else verdict
        for verdict in verdicts
    ]


def _proves_nothing(case: Case) -> str:
    return f"refused, but no valid certificate was accepted either ({case.via}), so it proves nothing"


def choose(cases: Sequence[Case], claimed: Collection[str] | None, settings: RunSettings) -> CaseSelection:
    """Selects the cases to run. `claimed`: features of the GatewayClass; None: unknown, so that all count as claimed."""
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
    unserved: set[RouteType] = set()

    async def tried(case: Case) -> CaseVerdict:
        nonlocal done
        async with turns:
            verdict = await Trial(testbed, settings, case, patience, unserved).run()
        done += 1
        progress("Judging", done, len(chosen.cases))
        return verdict

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(tried(case)) for case in chosen.cases]
    return [*_without_unproven([task.result() for task in running]), *chosen.left_out]
