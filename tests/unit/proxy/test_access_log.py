"""Following the access log: no line twice, no partial line, under any change of the file."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.proxy import launch
from lasthop.edge.proxy.access_log import BUDGET, AccessLogReader, SkippedLines, Tail, follow
from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.entry import AccessLogEntry, parse
from lasthop.edge.proxy.observer import ALL, ProxyObserver
from lasthop.edge.proxy.pod import LogForwarder
from lasthop.engine.outputs.envoy.access_log import FAILURES_SHARE
from tests.backends import PATIENCE, until
from tests.servers import server
from tests.unit.proxy.static_envoy import cluster, static_envoy


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


def test_a_truncated_file_is_read_from_its_start(log: Path) -> None:
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
    while True:
        assert tail.read() == []
        if not tail.behind:
            break
    append(log, "\nnext\n")
    assert tail.read()[-1] == b"next"
    tail.close()


LINE = json.dumps({"path": "/" + "\u200b" * 100, "status": 503, "flags": "UF"}) + "\n"


def test_excess_lines_are_skipped_counted_and_truncated(log: Path) -> None:
    tail = Tail(log, from_end=False, size_limit=1_000_000)
    append(log, LINE * 10_000)
    size = log.stat().st_size
    read = tail.read()
    skipped = tail.take_skipped()
    assert (len(read) > 50, len(read) + skipped.lines) == (True, 10_000)
    assert sum(len(line) + 1 for line in read) + skipped.bytes == size
    assert (log.stat().st_size, tail.behind) == (0, False)
    append(log, LINE)
    assert (len(tail.read()), tail.take_skipped()) == (1, SkippedLines())
    tail.close()


@pytest.mark.parametrize("size_limit", [100_000, 100_000_000])
def test_a_flood_is_known_when_it_is_written_and_not_again_when_it_is_read(log: Path, size_limit: int) -> None:
    tail = Tail(log, from_end=False, size_limit=size_limit)
    append(log, LINE * 10)
    assert (len(tail.read()), tail.take_written()) == (10, 10.0)
    append(log, LINE * 10_000)
    read = len(tail.read())
    assert tail.take_written() == pytest.approx(10_000, rel=0.02) and read < 200
    later = 0.0
    while tail.behind:
        tail.read()
        later += tail.take_written()
    assert later < 200
    tail.close()


async def test_the_share_follows_what_is_written_and_an_entry_that_waited_stands_for_what_it_did(folder: Path) -> None:
    told, lowered = asyncio.Event(), asyncio.Event()

    class Envoy(Admin):
        async def set_runtime(self, values: Mapping[str, int]) -> None:
            told.set()
            if values.get(FAILURES_SHARE, ALL) < ALL / 50:
                lowered.set()

    observer = ProxyObserver(Key("Gateway", "a", "g"), folder / "samples.log", Envoy(folder / "none"), lambda report: None)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(observer.run())
        await told.wait()
        began = datetime.now(UTC).isoformat()
        observer.wrote(30_000.0)
        await lowered.wait()
        await asyncio.sleep(0)  # by then it is in force
        running.cancel()
    now = datetime.now(UTC).isoformat()
    assert observer.stands_for(AccessLogEntry(time=began, duration_ms=1.0)) == 1.0
    assert observer.stands_for(AccessLogEntry(time=now, duration_ms=1.0)) > 50


def test_the_file_stays_bounded_while_it_grows_faster_than_it_is_read(log: Path) -> None:
    """Nothing is lost without being counted."""
    limit = 500_000
    tail = Tail(log, from_end=False, size_limit=limit)
    written = read = skipped = 0
    for _ in range(60):
        append(log, LINE * 200)
        written += 200
        read += len(tail.read())
        skipped += tail.take_skipped().lines
        assert log.stat().st_size <= limit + len(LINE) * 200
    while tail.behind:
        read += len(tail.read())
    assert skipped > 0 and read + skipped == written
    tail.close()


def test_a_file_of_any_size_is_skipped_by_looking_at_a_part_of_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log.touch()
    os.truncate(log, 3_000_000_000)  # takes no room
    tail = Tail(log, from_end=False, size_limit=1_000_000)
    looked: list[int] = []
    real = os.read

    def counted(fd: int, count: int) -> bytes:
        looked.append(count)
        return real(fd, count)

    monkeypatch.setattr(os, "read", counted)
    tail.read()
    assert sum(looked) < 20_000_000
    assert (log.stat().st_size, tail.take_skipped().bytes) == (0, 3_000_000_000)
    tail.close()


async def test_a_flood_is_read_within_a_budget_and_other_tasks_have_their_turn_after_each_piece(log: Path) -> None:
    count = 1_000
    append(log, LINE * count)
    entries_in_a_row: list[int] = [0]
    done = asyncio.Event()

    async def others() -> None:
        while not done.is_set():
            entries_in_a_row.append(0)
            await asyncio.sleep(0)

    began = time.monotonic()
    entries = follow(log, from_end=False, skipped=lambda skipped: None)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(others())
        for _ in range(count):
            assert (await anext(entries)).why
            entries_in_a_row[-1] += 1
        done.set()
    await entries.aclose()
    assert sum(entries_in_a_row) == count
    assert max(entries_in_a_row) < 200, "a piece of 64 KiB, and then somebody else"
    assert count * len(LINE) / (time.monotonic() - began) <= 1.2 * BUDGET


async def test_the_last_lines_are_read_before_it_ends(log: Path) -> None:
    entries: list[AccessLogEntry] = []

    async def tell() -> None:
        async for entry in follow(log, from_end=True, skipped=lambda skipped: None):
            entries.append(entry)

    append(log, LINE)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(tell())
        await asyncio.sleep(0)
        append(log, LINE * 300)  # more than a piece
        following.cancel()
    assert len(entries) == 300


def test_all_skipped_lines_are_reported_periodically(log: Path) -> None:
    reader = AccessLogReader(log, from_end=False, size_limit=100_000)
    skips, entries = [], 0
    for second in range(25):
        append(log, LINE * 1_000)
        entries += len(reader.read())
        skips.append(reader.skipped(float(second)))
    spoken = [second for second, skipped in enumerate(skips) if skipped]
    assert spoken == [0, 10, 20]
    last = reader.skipped(30.0)
    assert last and entries + last.lines + sum(skipped.lines for skipped in skips if skipped) == 25_000
    assert reader.skipped(60.0) is None
    reader.close()


async def test_a_pod_forwards_a_flood_piece_by_piece_and_says_what_it_skipped(
    log: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    append(log, LINE * 20_000)
    taken: list[AccessLogEntry] = []
    forward = LogForwarder(AccessLogReader(log, from_end=False), taken.append)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(forward.run())
        await asyncio.sleep(0)
        running.cancel()
    assert log.stat().st_size == 0
    out, err = capfdbinary.readouterr()
    (said,) = map(json.loads, err.splitlines())
    lines = out.splitlines()
    assert 50 < len(lines) < 200, "one piece; the rest was more than the file may hold"
    assert all(json.loads(line)["why"] for line in lines)
    assert len(lines) + said["lines_skipped"] == 20_000
    assert len(taken) == len(lines)


def test_a_field_is_cut_before_it_is_looked_at() -> None:
    entry = parse(json.dumps({"request_id": "\u200b" * 100_000}).encode())
    assert entry and entry.request_id == r"\u200b" * 2_000 + "..."


def test_entries_are_fit_for_a_terminal() -> None:
    entry = parse(json.dumps({"path": "/\x1b]0;title\x07\u202e", "status": 503, "tls_failure": None}).encode())
    assert entry == AccessLogEntry(path=r"/\x1b]0;title\x07\u202e", status=503)


@pytest.mark.parametrize("line", [b"", b"{", b"not json", b"[1]", b'{"status": "many"}', b'{"path": "\xff"}'])
def test_a_line_that_is_no_entry_is_left_out(line: bytes) -> None:
    assert parse(line) is None


async def test_envoy_goes_on_writing_at_the_start_of_a_log_that_was_cut(folder: Path, log: Path) -> None:
    with server(None) as port, static_envoy(folder, [cluster("ok", port)]) as envoy:
        entries = follow(log, from_end=False, skipped=lambda skipped: None, size_limit=1)
        paths = []
        async with asyncio.timeout(20):
            for name in ("ok", "gone", "ok", "gone"):
                await asyncio.to_thread(envoy.get, name)
                while True:
                    entry = await anext(entries)
                    if entry.path != "/-/up":
                        break
                paths.append((entry.path, entry.status, entry.why is not None))
        await entries.aclose()
        assert paths == [("/ok", 200, False), ("/gone", 500, True)] * 2
        assert log.stat().st_size < 100, "it was not cut"


async def test_without_a_reader_the_kernel_keeps_the_file_from_growing_and_envoy_goes_on(
    folder: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "FILE_SIZE", 20_000)
    with static_envoy(folder, []) as envoy:
        for _ in range(100):  # some 30,000 bytes
            assert (await asyncio.to_thread(envoy.get, "gone"))[0] == 500
        await asyncio.to_thread(until, lambda: log.stat().st_size == 20_000)
        for _ in range(20):
            assert (await asyncio.to_thread(envoy.get, "gone"))[0] == 500
        assert log.stat().st_size == 20_000
        os.truncate(log, 0)
        assert (await asyncio.to_thread(envoy.get, "again"))[0] == 500
        assert envoy.entry("again").flags == "NC"
