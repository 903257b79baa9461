"""The access log on standard output: a stopped reader blocks nothing, and repetitions are counted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading

import msgspec
import pytest

from lasthop.cli.render import access_log
from lasthop.cli.render.access_log import MAX_QUEUED, AccessLogPrinter
from lasthop.cli.render.request_lines import MOST, WINDOW, JsonLines, TextLines, request_line
from lasthop.edge.proxy.entry import AccessLogEntry
from tests.backends import until

BUSY_MACHINE = 30.0
"""Seconds: a busy machine is no reason to end before everything is printed."""


def test_lines_are_printed_in_order_and_the_last_ones_before_the_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        printer = AccessLogPrinter(writing, JsonLines(), lambda lines: None, BUSY_MACHINE)
        for number in range(100):
            printer(AccessLogEntry(path=f"/{number}", status=503))
        printer.close()
        os.close(writing)
        assert [json.loads(line) for line in output] == [{"path": f"/{number}", "status": 503} for number in range(100)]


def test_a_stopped_reader_blocks_nothing_and_missed_lines_are_counted() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:  # until the pipe is full
            os.write(writing, b"\n")
    os.set_blocking(writing, True)
    many = 2 * MAX_QUEUED
    repetitions: list[int] = []
    with os.fdopen(reading, "rb") as output:
        printer = AccessLogPrinter(writing, JsonLines(), repetitions.append, BUSY_MACHINE)
        for number in range(many):
            printer(AccessLogEntry(path=f"/{number}"))
        early = len(repetitions)
        assert early <= 1, "there is room only once, if the thread takes its first line late"
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(line for line in output if line != b"\n"))
        reader.start()
        attempts = 0

        def recovered() -> bool:
            nonlocal attempts
            attempts += 1
            printer(AccessLogEntry(path="/after"))
            return len(repetitions) > early

        until(recovered)
        printer.close()
        os.close(writing)
        reader.join(10)
    assert len(lines) >= MAX_QUEUED
    assert len(lines) + sum(repetitions) == many + attempts


def test_a_closed_output_does_not_end_the_gateway() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    printer = AccessLogPrinter(writing, JsonLines(), lambda lines: None, BUSY_MACHINE)
    for _ in range(10):
        printer(AccessLogEntry(path="/"))
    printer.close()
    os.close(writing)


def test_a_reader_that_never_resumes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "DROP_NOTICE_SECONDS", 0.0)
    reading, writing = os.pipe()
    os.close(reading)
    repetitions: list[int] = []
    printer = AccessLogPrinter(writing, JsonLines(), repetitions.append, 0.0)
    for _ in range(2 * MAX_QUEUED):
        printer(AccessLogEntry(path="/"))
    printer.close()
    os.close(writing)
    assert MAX_QUEUED - 10 <= sum(repetitions) <= MAX_QUEUED


FAILED = AccessLogEntry(
    time="2026-01-01T07:15:15.000Z",
    gateway="shop/web",
    authority="www.example",
    method="GET",
    path="/cart",
    status=503,
    upstream_cluster="shop/web/shop/api/443/auto",
    upstream_host="10.0.0.1:8443",
    policy="shop/api",
    why="certificate is for old.example, policy shop/api wants api.example",
    advice="lasthop probe shop/api",
)


def test_a_failed_request_is_one_line_with_its_reason_and_what_to_try() -> None:
    line = request_line(FAILED)
    assert line.endswith(
        " 503 GET www.example/cart -> shop/api:443 10.0.0.1:8443  certificate is for old.example, policy shop/api wants "
        "api.example  (lasthop probe shop/api)"
    )
    assert re.match(r"\d\d:\d\d:\d\d 503", line)


def test_a_repeated_failure_is_counted_and_printed_every_ten_seconds() -> None:
    lines = TextLines()
    assert len(lines.lines(FAILED, 0.0)) == 1
    assert [lines.lines(msgspec.structs.replace(FAILED, path=f"/{n}"), 0.1) for n in range(412)] == [[]] * 412
    assert lines.due(WINDOW - 0.1) == []
    (line,) = lines.due(WINDOW)
    assert line.strip() == (
        "and 412 more in 10 s: 503 -> shop/api:443  certificate is for old.example, policy shop/api wants api.example"
    )
    assert lines.lines(FAILED, WINDOW + 1) == []
    (again,) = lines.due(2 * WINDOW)
    assert "and 1 more in 10 s" in again
    assert lines.due(3 * WINDOW) == [] and lines.deadline is None
    assert len(lines.lines(FAILED, 3 * WINDOW)) == 1, "it is news again"


def test_remaining_counts_are_printed_at_the_end() -> None:
    lines = TextLines()
    for now in (0.0, 1.0, 2.0):
        lines.lines(FAILED, now)
    (line,) = lines.due(4.0, last=True)
    assert "and 2 more in 4 s" in line


def test_failures_of_many_kinds_are_bounded() -> None:
    lines = TextLines()
    printed = sum(len(lines.lines(msgspec.structs.replace(FAILED, why=f"reason {n}"), 0.0)) for n in range(10 * MOST))
    assert printed == MOST + 1
    (others,) = lines.due(WINDOW)
    assert others.strip() == f"and {10 * MOST - MOST - 1:,} more in 10 s: other failures"


def test_a_hostile_request_cannot_forge_a_line() -> None:
    line = request_line(msgspec.structs.replace(FAILED, path="/\x1b[2J\n" + "a" * 500, why="\u202eevil\r\n"))
    assert line.isprintable() and len(line) < 400


def test_quiet_entries_are_not_printed() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        printer = AccessLogPrinter(writing, JsonLines(), lambda lines: None, BUSY_MACHINE)
        printer(msgspec.structs.replace(FAILED, quiet=True))
        printer(FAILED)
        printer.close()
        os.close(writing)
        (only,) = output
        assert "quiet" not in json.loads(only)
