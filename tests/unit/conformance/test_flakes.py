from __future__ import annotations

from pathlib import Path

from conformance.flakes import History, Run, told


def test_a_flaky_test_is_named_counted_and_its_log_kept(tmp_path: Path) -> None:
    log = tmp_path / "suite.log"
    log.write_text("it said no")
    history = History(tmp_path / "flakes")
    assert history.add("one", [], log) is None
    kept = history.add("two", ["Beta"], log)
    assert kept and kept.read_text() == "it said no"
    assert history.runs() == [Run("one"), Run("two", ("Beta",))]
    assert told(history.runs(), kept) == [
        "FLAKY  Beta: failed, then passed alone; in 1 of the last 2 runs",
        f"No report is filed from a run with flaky tests. Its log is kept in {kept}",
    ]


def test_a_second_run_with_flaky_tests_among_ten_is_called_a_defect() -> None:
    good, bad = Run("good"), Run("bad", ("Beta",))
    defect = "2 of the last 10 runs had flaky tests: find out why"
    assert told([bad, *[good] * 8, bad], None)[-1] == defect
    assert defect not in told([bad, *[good] * 9, bad], None), "that was long ago"
    assert told([*[good] * 7, bad, bad, good], None) == [], "this run is not to blame"
