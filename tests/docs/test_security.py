"""docs/security.md names tests as guards: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
GUARDS = sorted(set(re.findall(r"`((?:tests|bench)/[\w./-]+\.(?:py|yaml))(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("file", "test"), GUARDS)
def test_a_guard_that_is_named_exists(file: str, test: str) -> None:
    text = (ROOT / file).read_text()
    assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE)


def test_every_row_of_the_tables_has_a_guard() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (T?\d+|pins)\b", line)]
    assert len(rows) >= 24 + 30
    assert [row for row in rows if "`tests/" not in row] == []
