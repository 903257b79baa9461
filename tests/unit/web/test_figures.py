"""Figures as people read them."""

from __future__ import annotations

import pytest

from lasthop.web import figures

NOW = 1_000_000_000.0


@pytest.mark.parametrize(
    "per_second, shown",
    [(0, ""), (0.04, "< 0.1/s"), (0.4, "0.4/s"), (9.96, "10/s"), (12.3, "12/s"), (1234, "1.2k/s"), (56_789, "57k/s")],
)
def test_rates(per_second: float, shown: str) -> None:
    assert figures.rate(per_second) == shown


@pytest.mark.parametrize(
    "part, shown",
    [(0, "0 %"), (0.0001, "< 0.1 %"), (0.5, "50 %"), (0.0123, "1.23 %"), (0.9999, "> 99.9 %"), (1, "100 %")],
)
def test_a_little_is_not_nothing_and_nearly_all_is_not_all(part: float, shown: str) -> None:
    assert figures.share(part) == shown


@pytest.mark.parametrize(
    "left, shown, due",
    [
        (-3.0, "expired 3 days ago", "over"),
        (-0.5, "expired within a day", "over"),
        (0.5, "expires today", "soon"),
        (1.5, "1 day left", "soon"),
        (30.5, "30 days left", "soon"),
        (31.5, "31 days left", ""),
        (4000.5, "4,000 days left", ""),
    ],
)
def test_days_left(left: float, shown: str, due: str) -> None:
    end = NOW + left * figures.DAY
    assert (figures.days(end, NOW), figures.due(end, NOW)) == (shown, due)


@pytest.mark.parametrize("unix, shown", [(0, "1970-01-01"), (1e30, "no date"), (-1e30, "no date"), (float("nan"), "no date")])
def test_a_date_that_no_calendar_has_is_none(unix: float, shown: str) -> None:
    assert figures.date(unix) == shown
    assert figures.days(unix, NOW)
