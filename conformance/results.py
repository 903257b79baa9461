"""Parses the suite's output and report into values: no process, no files."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_RESULT = re.compile(r"--- (PASS|FAIL|SKIP): TestConformance/([^/\s]+) \(([\d.]+)s\)")
_SPEAKER = re.compile(r"=== (?:RUN|CONT|NAME|PAUSE)\s+TestConformance(?:/([^/\s]+))?")


@dataclass(frozen=True)
class Result:
    test: str
    outcome: str  # PASS, FAIL, SKIP
    seconds: float
    said: tuple[str, ...] = ()  # the end of a failed test's output


@dataclass
class Output:
    """Reads `-test.v=test2json` line by line: a Result each time a test ends."""

    results: dict[str, Result] = field(default_factory=dict)
    _speaker: str = ""
    _said: dict[str, deque[str]] = field(default_factory=dict)

    def feed(self, line: str) -> Result | None:
        line = line.rstrip().rpartition("\x16")[2]  # the mark before each line of the test framework itself
        if match := _SPEAKER.match(line):
            self._speaker = match[1] or ""
            return None
        if match := _RESULT.search(line):
            outcome, test, seconds = match.groups()
            output = tuple(self._said.pop(test, ())) if outcome == "FAIL" else ()
            self.results[test] = Result(test, outcome, float(seconds), output)
            return self.results[test]
        if line and self._speaker:
            self._said.setdefault(self._speaker, deque(maxlen=40)).append(line)
        return None

    def failed(self) -> list[str]:
        return [result.test for result in self.results.values() if result.outcome == "FAIL"]


def verdict(output: Output, flaky: Sequence[str], code: int) -> tuple[list[str], int]:
    """The result as text and as an exit code. `flaky`: what failed and then passed alone; `code`: the suite's own."""
    outcomes = [result.outcome for result in output.results.values()]
    lines = [", ".join(f"{outcomes.count(outcome)} {word}" for outcome, word in _WORDS.items())]
    lost = [test for test in output.failed() if test not in flaky]
    lines += [f"FAILED {test}" for test in lost]
    if code not in (0, 1) or (code and not output.failed()):  # 1: tests have failed; 2: it broke off
        lines.append(f"The suite ended with {code}: not all was run")
        return lines, 1
    return lines, 1 if lost or not output.results else 0


_WORDS = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}


def summary(report: dict[str, Any]) -> list[str]:
    """A line per profile: passed, failed and skipped of its core and extended tests."""
    lines = []
    for profile in report.get("profiles") or ():
        parts = []
        for level in ("core", "extended"):
            if level in profile:
                parts.append(f"{level} {_counts(profile[level].get('statistics') or {})}")
        lines.append(f"{profile['name']:14} {'   '.join(parts)}")
    return lines


def _counts(statistics: dict[str, int]) -> str:
    numbers = {name.lower(): number for name, number in statistics.items()}
    return ", ".join(f"{numbers.get(name, 0)} {name}" for name in ("passed", "failed", "skipped"))
