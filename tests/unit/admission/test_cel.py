"""Results of rules are remembered in bounded memory, and numbers have the range of their format."""

from __future__ import annotations

import pytest

from lasthop.edge.admission import cel
from lasthop.edge.admission.schema import _json_schema


def test_results_are_remembered_for_short_values_and_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "MAX_RESULTS", 3)
    monkeypatch.setattr(cel, "_RESULTS", {})
    for number in range(20):
        assert cel._holds("self < 10", number) is (number < 10)
        assert 1 <= len(cel._RESULTS) <= 3
    long = "a" * (cel.MAX_CACHED + 1)
    assert cel._holds("self.contains('a')", long) and not cel._holds("self.contains('b')", long)
    assert not any(b"aaa" in value for _, value in cel._RESULTS)


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [
        ({}, -(2**31), 2**31 - 1),
        ({"minimum": 1, "maximum": 9}, 1, 9),
        ({"minimum": -(2**40), "maximum": 2**40}, -(2**31), 2**31 - 1),
    ],
)
def test_a_number_has_the_range_of_its_format(given: dict[str, int], low: int, high: int) -> None:
    schema = _json_schema({"type": "integer", "format": "int32", **given})
    assert (schema["minimum"], schema["maximum"]) == (low, high)
