from __future__ import annotations

import pytest

from lasthop.base.api.core import Service
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import failed
from lasthop.engine.plan.limits import MESSAGE_LENGTH
from lasthop.engine.plan.messages import limited
from lasthop.engine.plan.problem import Problem


def test_a_message_is_cut_between_its_parts_and_counts_the_rest() -> None:
    message = "; ".join(f"rules[{number}]: Service shop/a{number} does not exist" for number in range(1000))
    cut = limited(message)
    shown = cut.split("; ")
    assert len(cut) <= MESSAGE_LENGTH
    assert shown[:-1] == message.split("; ")[: len(shown) - 1]
    assert shown[-1] == f"… and {1000 - (len(shown) - 1)} more"


@pytest.mark.parametrize("length", [0, 1, 7, 30])
@pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 100])
@pytest.mark.parametrize("limit", [20, 33, 60])
def test_no_message_is_longer_than_its_limit(length: int, count: int, limit: int) -> None:
    message = "; ".join(["é" * length] * count)
    assert len(limited(message, limit)) <= limit
    assert len(message) > limit or limited(message, limit) == message


@pytest.mark.parametrize("separator", ["", "; "])
def test_every_condition_is_within_what_an_api_server_takes(separator: str) -> None:
    (condition,) = stated(
        [failed(reasons.RESOLVED_REFS, Problem(reasons.BACKEND_NOT_FOUND, separator.join(["x" * 1000] * 100)))], Service()
    )
    assert len(condition.message) <= 32768
    assert "…" in condition.message
