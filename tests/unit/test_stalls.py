"""A blocked event loop is reported, with the stack."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lasthop.run import stalls
from lasthop.run.stalls import BEAT, MAX_FRAMES, STALL, Stalls, stack
from tests.backends import PATIENCE
from tests.xds_envoy import until


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, text: str, **fields: Any) -> None:
        self.lines.append((text, fields))


def watching() -> tuple[Stalls, CollectorRegistry, Log]:
    registry, log = CollectorRegistry(), Log()
    return Stalls(registry, log), registry, log


def count(registry: CollectorRegistry) -> tuple[float | None, float | None]:
    name = "lasthop_event_loop_stall_seconds"
    return registry.get_sample_value(f"{name}_count"), registry.get_sample_value(f"{name}_sum")


def test_a_loop_that_comes_round_is_not_reported() -> None:
    watch, registry, log = watching()
    watch.look(1e9, threading.get_ident())
    watch.beat(100.0)
    watch.look(100.0 + BEAT + STALL - 0.01, threading.get_ident())
    watch.beat(100.0 + BEAT + STALL - 0.01)
    assert log.lines == [] and count(registry) == (0, 0)


def test_a_stall_is_logged_once_while_it_lasts_and_counted_once_at_its_end() -> None:
    watch, registry, log = watching()
    watch.beat(100.0)
    for begin in (100.0, 105.0 + 2 * BEAT):
        log.lines.clear()
        for seconds in (3.0, 4.0, 5.0):
            watch.look(begin + BEAT + seconds, threading.get_ident())
        ((text, fields),) = log.lines
        assert text == "the event loop is stalled"
        assert fields["stack"].startswith("look (run/stalls.py:") and "test_a_stall_is_logged" in fields["stack"]
        watch.beat(begin + BEAT + 5.0)
        assert log.lines[1:] == [("the event loop was stalled", {"seconds": 5.0})]
        watch.beat(begin + 2 * BEAT + 5.0)
        assert len(log.lines) == 2
    assert count(registry) == (2, 10.0)


async def test_another_thread_reports_a_blocked_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "STALL", 0.0)
    monkeypatch.setattr(stalls, "BEAT", 0.01)
    watch, registry, log = watching()

    def hold_up() -> None:
        end = time.monotonic() + PATIENCE
        while not any("hold_up" in fields.get("stack", "") for _, fields in log.lines):
            assert time.monotonic() < end

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(watch.watch())
        await asyncio.sleep(0)
        hold_up()
        await until(lambda: count(registry)[0])
        task.cancel()


def test_a_stack_is_bounded_and_names_no_folders_of_this_machine() -> None:
    def deep(levels: int) -> str:
        return deep(levels - 1) if levels else stack(sys._getframe())

    places = deep(100).split(" < ")
    assert len(places) == MAX_FRAMES and all(place.startswith("deep (unit/test_stalls.py:") for place in places)
    assert stack(None) == ""
