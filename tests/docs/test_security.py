"""docs/security.md and ARCHITECTURE.md name tests as guards: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
GUARDS = sorted(set(re.findall(r"`((?:tests|bench)/[\w./-]+\.(?:py|yaml))(?:::(\w+))?`", PAGE + ARCHITECTURE)))


@pytest.mark.parametrize(("file", "test"), GUARDS)
def test_a_guard_that_is_named_exists(file: str, test: str) -> None:
    text = (ROOT / file).read_text()
    assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE)


def test_every_row_of_the_tables_has_a_guard() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (T?\d+|pins)\b", line)]
    assert len(rows) >= 24 + 30
    assert [row for row in rows if "`tests/" not in row] == []


def test_every_promise_has_a_guard_in_the_architecture() -> None:
    promises = re.findall(r"^(\d+)\. \*\*", PAGE.partition("## The promises")[2].partition("\n## ")[0], re.MULTILINE)
    rows = dict(re.findall(r"^\| (\d+)\. .*?\| (.*) \|$", ARCHITECTURE, re.MULTILINE))
    assert list(rows) == promises
    assert [number for number, guard in rows.items() if "::" not in guard] == []
