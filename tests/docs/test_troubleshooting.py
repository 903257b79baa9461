"""docs/troubleshooting.md knows every failure of the table of real backends, and its table of symptoms leads everywhere."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import DOCS, anchors, links, without_code
from tests.proxy.truth_rows import ROWS, Fate

PAGE = DOCS / "troubleshooting.md"
FAILURES = sorted({part for row in ROWS.values() if row.fate is not Fate.WORKING for part in row.words.split("|")})


@pytest.mark.parametrize("words", FAILURES)
def test_failures_of_a_backend_are_explained(words: str) -> None:
    assert words in PAGE.read_text()


def test_every_section_is_reached_from_the_table_of_symptoms_and_names_a_command() -> None:
    sections = re.split(r"^## ", without_code(PAGE.read_text()), flags=re.MULTILINE)[1:]
    assert len(sections) >= 18
    assert not [text.splitlines()[0] for text in sections if not re.search(r"^    lasthop ", text, re.MULTILINE)]
    reached = {link.removeprefix("#") for link in links(PAGE) if link.startswith("#")}
    assert anchors(PAGE) - {"troubleshooting"} == reached
