"""The report of the bench, from rows that are made up."""

from __future__ import annotations

from bench.results import markdown
from bench.rows import Row, Run
from bench.table import number, ratio

RUN = Run("control", "python -m bench.control", "2026-11-17 12:00", "2 cores", "abc1234", 0.25)
MET = Row("control", "policy edit", 5000, 9.0, "ms", 2700.0, "Envoy Gateway", 1 / 300, "≤ 1/300", True)
MISSED = Row("control", "CA edit", 5000, 45.0, "ms", goal="≤ 30 ms", met=False)


def test_the_report_has_a_line_for_each_figure_with_its_ratio_and_goal() -> None:
    text = markdown([RUN], [MET], [])
    assert "| policy edit | 5,000 | 9 ms | 2,700 (Envoy Gateway) | 1/300 | ≤ 1/300 | met |" in text


def test_the_report_begins_with_what_missed_its_goal() -> None:
    text = markdown([RUN], [MET, MISSED], [])
    assert "1 goals met, 1 missed." in text
    assert text.index("- **missed**: CA edit, N=5,000: 45 ms; goal ≤ 30 ms") < text.index("## Control plane")


def test_the_report_has_the_method_and_the_load_of_others() -> None:
    text = markdown([RUN], [MET], [])
    assert "`python -m bench.control`, 2026-11-17 12:00, commit abc1234; 2 cores." in text
    assert "Other processes took 0.25 cores" in text


def test_each_part_shows_its_own_plots() -> None:
    text = markdown([RUN], [MET, Row("data", "1 KiB", 0, 1.0, "us")], ["plots/control.png"])
    assert text.index("![control](plots/control.png)") < text.index("## Data plane")


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (None, 0, 0.01234, 5.678, 45.0, 17540.4)] == ["", "0", "0.0123", "5.68", "45", "17,540"]


def test_small_ratios_are_written_as_goals_are() -> None:
    assert [ratio(value) for value in (None, 1 / 300, 0.5, 1.25)] == ["", "1/300", "0.5", "1.25"]
