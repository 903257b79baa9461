"""Following the access log: nothing twice, nothing half, whatever happens to the file."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from static_envoy import cluster, static_envoy

from lasthop.proxy.access_log import Tail, follow
from lasthop.proxy.entry import Entry, parse
from tests.servers import server


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / "access.log"


def append(log: Path, *texts: str) -> None:
    with log.open("a") as file:
        file.writelines(texts)


def test_lines_are_read_once_and_only_when_whole(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=1000)
    assert tail.read() == []
    append(log, "one\ntw")
    assert tail.read() == [b"one"]
    append(log, "o\nthree\n")
    assert tail.read() == [b"two", b"three"]
    assert tail.read() == []
    tail.close()


def test_what_was_there_before_can_be_left_out(log: Path) -> None:
    append(log, "old\n")
    tail = Tail(log, from_end=True, size_limit=1000)
    append(log, "new\n")
    assert tail.read() == [b"new"]
    tail.close()


def test_a_file_that_somebody_cuts_short_is_read_from_its_start(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=1000)
    append(log, "a long line\nhalf")
    tail.read()
    os.truncate(log, 0)
    append(log, "new\n")
    assert tail.read() == [b"new"]
    tail.close()


def test_a_file_that_is_rotated_away_is_finished_and_the_new_one_read(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=1000)
    append(log, "one\n")
    tail.read()
    append(log, "two\n")
    log.rename(log.with_suffix(".1"))
    append(log, "three\n")
    assert tail.read() + tail.read() == [b"two", b"three"]
    tail.close()


def test_a_file_above_the_limit_is_cut_and_read_on(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=100)
    append(log, "x" * 150 + "\n", "half")
    assert tail.read() == [b"x" * 150]
    assert log.stat().st_size == 0
    append(log, " a line\n")
    assert tail.read() == [b"half a line"]
    tail.close()


def test_a_line_without_end_is_given_up(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=10_000_000)
    append(log, "x" * 300_000)
    assert tail.read() == []
    append(log, "\nnext\n")
    assert tail.read()[-1] == b"next"
    tail.close()


def test_entries_are_fit_for_a_terminal() -> None:
    entry = parse(json.dumps({"path": "/\x1b]0;title\x07\u202e", "status": 503, "tls_failure": None}).encode())
    assert entry == Entry(path="/?]0;title??", status=503)


@pytest.mark.parametrize("line", [b"", b"{", b"not json", b"[1]", b'{"status": "many"}', b'{"path": "\xff"}'])
def test_a_line_that_is_no_entry_is_left_out(line: bytes) -> None:
    assert parse(line) is None


async def test_envoy_goes_on_writing_at_the_start_of_a_log_that_was_cut(folder: Path, log: Path) -> None:
    with server(None) as port, static_envoy(folder, [cluster("ok", port)]) as envoy:
        entries = follow(log, from_end=False, size_limit=1)
        paths = []
        async with asyncio.timeout(20):
            for name in ("ok", "gone", "ok", "gone"):
                await asyncio.to_thread(envoy.get, name)
                while True:
                    entry = await anext(entries)
                    if entry.path != "/-/up":
                        break
                paths.append((entry.path, entry.status, entry.why is not None))
                await asyncio.sleep(0.3)
        await entries.aclose()
        assert paths == [("/ok", 200, False), ("/gone", 500, True)] * 2
        assert log.stat().st_size < 100, "it was not cut"
