"""Failed requests on standard output: a reader that stops reading stops nothing."""

from __future__ import annotations

import contextlib
import json
import os
import threading

from lasthop.cli.render.failed_requests import WAITING, FailedRequestPrinter
from lasthop.proxy.entry import AccessLogEntry
from tests.backends import until

BUSY_MACHINE = 30.0
"""Seconds: a busy machine is no reason to end before everything is printed."""


def test_lines_are_printed_in_order_and_the_last_ones_before_the_end() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as output:
        printer = FailedRequestPrinter(writing, lambda lines: None, BUSY_MACHINE)
        for number in range(100):
            printer(AccessLogEntry(path=f"/{number}", status=503))
        printer.close()
        os.close(writing)
        assert [json.loads(line) for line in output] == [{"path": f"/{number}", "status": 503} for number in range(100)]


def test_a_reader_that_stops_holds_nobody_up_and_what_it_misses_is_counted() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:  # until the pipe is full
            os.write(writing, b"\n")
    os.set_blocking(writing, True)
    many = 2 * WAITING
    told: list[int] = []
    with os.fdopen(reading, "rb") as output:
        printer = FailedRequestPrinter(writing, told.append, BUSY_MACHINE)
        for number in range(many):
            printer(AccessLogEntry(path=f"/{number}"))
        early = len(told)
        assert early <= 1, "there is room only once, if the thread takes its first line late"
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.extend(line for line in output if line != b"\n"))
        reader.start()
        attempts = 0

        def recovered() -> bool:
            nonlocal attempts
            attempts += 1
            printer(AccessLogEntry(path="/after"))
            return len(told) > early

        until(recovered)
        printer.close()
        os.close(writing)
        reader.join(10)
    assert len(lines) >= WAITING
    assert len(lines) + sum(told) == many + attempts


def test_nobody_left_to_read_is_no_reason_to_end() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    printer = FailedRequestPrinter(writing, lambda lines: None, BUSY_MACHINE)
    for _ in range(10):
        printer(AccessLogEntry(path="/"))
    printer.close()
    os.close(writing)
