from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lasthop.api.core import Service
from lasthop.outputs.status.conditions import stated
from lasthop.plan.messages import MESSAGE, limited
from lasthop.plan.reasons import false


def test_a_message_is_cut_between_its_parts_and_counts_the_rest() -> None:
    message = "; ".join(f"rules[{number}]: Service shop/a{number} does not exist" for number in range(1000))
    cut = limited(message)
    shown = cut.split("; ")
    assert len(cut) <= MESSAGE
    assert shown[:-1] == message.split("; ")[: len(shown) - 1]
    assert shown[-1] == f"… and {1000 - (len(shown) - 1)} more"


@given(st.lists(st.text(alphabet="ab; é", max_size=60), max_size=60), st.integers(20, 200))
def test_no_message_is_longer_than_its_limit(parts: list[str], limit: int) -> None:
    message = "; ".join(parts)
    assert len(limited(message, limit)) <= limit
    assert len(message) > limit or limited(message, limit) == message


@pytest.mark.parametrize("separator", ["", "; "])
def test_every_condition_is_within_what_an_api_server_takes(separator: str) -> None:
    (found,) = stated([false("ResolvedRefs", "BackendNotFound", separator.join(["x" * 1000] * 100))], Service())
    assert len(found.message) <= 32768
    assert "…" in found.message
