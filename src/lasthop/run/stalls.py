"""Reports a stalled event loop, with a metric and a log line with the stack of the blocking code.

main thread: beat ── beat ── (held) ───────────────── beat   measures the duration
watching thread:  look ── look ── look: no beat ── look      logs the stack meanwhile
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import PurePath
from types import FrameType
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

BEAT: Final = 0.25
"""Seconds between two beats, and between two checks of them."""
STALL: Final = 2.0
"""Seconds without a beat that are reported. Normal slices of work take milliseconds."""
BUCKETS: Final = (2.5, 5.0, 10.0, 30.0, 60.0)
MAX_FRAMES: Final = 25


class Stalls:
    def __init__(self, registry: CollectorRegistry, log: Any) -> None:
        self._log = log
        self._seconds = Histogram(
            "lasthop_event_loop_stall_seconds",
            f"Duration of event loop stalls of more than {STALL:g} s.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._beat: float | None = None
        self._reported = False

    async def watch(self) -> None:
        """Watches the running event loop until cancelled."""
        stopped, thread = threading.Event(), threading.get_ident()

        def look() -> None:
            while not stopped.wait(BEAT):
                self.look(time.monotonic(), thread)

        watching = threading.Thread(target=look, name="stalls", daemon=True)
        watching.start()
        try:
            while True:
                self.beat(time.monotonic())
                await asyncio.sleep(BEAT)
        finally:
            stopped.set()

    def beat(self, now: float) -> None:
        """Records that the event loop runs."""
        held = self._held(now)
        self._beat, self._reported = now, False
        if held >= STALL:
            self._seconds.observe(held)
            self._log.warning("the event loop was stalled", seconds=round(held, 1))

    def look(self, now: float, thread: int) -> None:
        """Logs the position of a stalled event loop once."""
        if self._held(now) >= STALL and not self._reported:
            self._reported = True
            frame = sys._current_frames().get(thread)
            self._log.warning("the event loop is stalled", stack=stack(frame))

    def _held(self, now: float) -> float:
        return 0.0 if self._beat is None else now - self._beat - BEAT


def stack(frame: FrameType | None) -> str:
    """Returns the stack of a thread, the innermost function first."""
    places: list[str] = []
    while frame is not None and len(places) < MAX_FRAMES:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-2:])
        places.append(f"{frame.f_code.co_name} ({file}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
