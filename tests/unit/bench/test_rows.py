"""Figures of the bench: how they are judged, kept and grown. No figure is measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import goals, rows
from bench.goals import Goal
from bench.rows import Row, Run, growth, judged, missed, verdict

PEER = "Envoy Gateway"
RUN = Run("part", "python -m bench", "2026-11-17 12:00", "2 cores", "abc1234", 0.1)


@pytest.fixture(autouse=True)
def some_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        ("part", "time"): (Goal("ours", 30), Goal("growth", 1.5)),
        ("part", "CPU"): (Goal("ratio", 1 / 300, from_n=5000),),
        ("part", "requests"): (Goal("ours", 0.97, at_least=True),),
        ("part", "both"): (Goal("ours", 10), Goal("ratio", 0.5)),
        ("part", "named"): (Goal("ratio", 1.0, peer=PEER),),
    }
    monkeypatch.setattr(rows, "GOALS", made)


def test_a_figure_within_its_limit_meets_its_goal() -> None:
    assert judged("part", "time", 100, 30.0, "ms") == Row("part", "time", 100, 30.0, "ms", goal="≤ 30 ms", met=True)


def test_a_figure_above_its_limit_misses_its_goal() -> None:
    assert judged("part", "time", 100, 30.1, "ms").met is False


def test_a_limit_can_be_the_least() -> None:
    assert judged("part", "requests", 0, 0.98, "x").met is True
    assert judged("part", "requests", 0, 0.96, "x").met is False


def test_a_ratio_is_ours_divided_by_the_peers() -> None:
    row = judged("part", "CPU", 5000, 10.0, "ms", 3000.0, PEER)
    assert (row.ratio, row.goal, row.met) == (10 / 3000, "≤ 1/300", True)


def test_a_ratio_is_not_judged_below_the_size_that_its_goal_is_about() -> None:
    row = judged("part", "CPU", 100, 10.0, "ms", 40.0, PEER)
    assert (row.ratio, row.goal, row.met) == (0.25, "", None)


def test_a_ratio_without_a_peer_is_not_judged() -> None:
    assert judged("part", "CPU", 5000, 10.0, "ms").met is None


def test_a_goal_beside_one_peer_says_nothing_of_another() -> None:
    assert judged("part", "named", 1, 2.0, "ms", 1.0, PEER).met is False
    assert judged("part", "named", 1, 2.0, "ms", 1.0, "nginx").met is None


def test_a_figure_with_two_goals_has_to_meet_both() -> None:
    assert judged("part", "both", 1, 9.0, "ms", 10.0, PEER).met is False
    assert judged("part", "both", 1, 9.0, "ms", 20.0, PEER).met is True


def test_a_figure_without_a_goal_is_shown_and_not_judged() -> None:
    assert judged("part", "other", 1, 1.0, "ms").met is None


def test_growth_compares_the_largest_size_with_the_smallest() -> None:
    seen = [judged("part", "time", n, ours, "ms") for n, ours in ((1000, 99.0), (5000, 16.0), (100, 10.0))]
    (row,) = growth(seen)
    assert (row.what, row.n, row.ours, row.met) == ("time, N=5,000 : N=100", 5000, 1.6, False)


def test_one_size_alone_does_not_grow() -> None:
    assert growth([judged("part", "time", 100, 10.0, "ms")]) == []


def test_what_grows_too_much_makes_the_bench_fail_although_each_figure_is_within_its_limit() -> None:
    seen = [judged("part", "time", 100, 10.0, "ms"), judged("part", "time", 5000, 20.0, "ms")]
    assert missed(seen) == []
    assert verdict(seen) == 1
    assert verdict(seen[:1]) == 0


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = [judged("part", "time", 100, 10.0, "ms"), judged("part", "CPU", 5000, 10.0, "ms", 3000.0, PEER)]
    rows.write("part", RUN, written, tmp_path)
    assert rows.read(tmp_path) == ([RUN], written)


def test_a_part_that_runs_again_replaces_what_it_wrote(tmp_path: Path) -> None:
    rows.write("part", RUN, [judged("part", "time", 100, 10.0, "ms")], tmp_path)
    again = [judged("part", "time", 100, 11.0, "ms")]
    rows.write("part", RUN, again, tmp_path)
    assert rows.read(tmp_path)[1] == again


@pytest.mark.parametrize(("of", "limit", "words"), [("ours", 0, "≤ 0 B"), ("ratio", 1 / 3, "≤ 1/3"), ("growth", 1.5, "≤ 1.5")])
def test_a_goal_says_its_limit(of: goals.Of, limit: float, words: str) -> None:
    assert Goal(of, limit).words("B") == words
