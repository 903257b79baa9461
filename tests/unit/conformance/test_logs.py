from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from conformance.node.logs import record, select

LINES = ["2026-01-01T00:00:01.000000Z one", "2026-01-01T00:00:02.000000Z two words", "2026-01-01T00:00:03.000000Z "]


def test_logs_are_chosen_by_time_and_tail() -> None:
    assert select(LINES, None, None, timestamps=False) == "one\ntwo words\n\n"
    assert select(LINES, datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC), None, timestamps=False) == "two words\n\n"
    assert select(LINES, None, 1, timestamps=True) == LINES[2] + "\n"


async def test_container_output_is_kept_with_its_time(tmp_path: Path) -> None:
    stream = asyncio.StreamReader(limit=64)
    stream.feed_data(b"one\n" + b"x" * 200 + b"\nlast without an end")
    stream.feed_eof()
    await record(stream, tmp_path / "log")
    text = select((tmp_path / "log").read_text().splitlines(), None, None, timestamps=False)
    assert text.startswith("one\n") and text.count("x") == 200 and text.endswith("last without an end\n")
