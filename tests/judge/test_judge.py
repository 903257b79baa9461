"""Lasthop in files mode against every case of `lasthop judge`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lasthop_judge.cases import ALL
from lasthop_judge.model import CaseVerdict, Outcome
from tests.judge.judged import judged

pytestmark = pytest.mark.timeout(600)
"""The first case waits for all of them, on whatever machine."""
LEFT_OUT = {"status/foreign": "nobody else writes status in files mode"}


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, CaseVerdict]]:
    """Of all cases at once, on one gateway."""
    yield {verdict.case.id: verdict for verdict in judged(ALL)}


@pytest.mark.parametrize("id", [case.id for case in ALL])
def test_lasthop_passes_every_case(verdicts: dict[str, CaseVerdict], id: str) -> None:
    verdict = verdicts[id]
    wanted = Outcome.NOT_RUN if id in LEFT_OUT else Outcome.PASS
    assert verdict.outcome is wanted, "\n".join(
        (verdict.why, *(str(fault) for fault in verdict.faults), *verdict.repro_commands)
    )
