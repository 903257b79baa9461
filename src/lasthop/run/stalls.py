"""Reports an event loop that is held up: by a metric, and by a line of the log with the stack of what holds it.

main thread: beat ── beat ── (held) ───────────────── beat   measures how long
watching thread:  look ── look ── look: no beat ── look      says where, while it lasts
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
"""Seconds between two beats, and between two looks at them."""
STALL: Final = 2.0
"""Seconds without a beat that are reported. The slices in which everything works take milliseconds."""
BUCKETS: Final = (2.5, 5.0, 10.0, 30.0, 60.0)
MAX_FRAMES: Final = 25


class Stalls:
    def __init__(self, registry: CollectorRegistry, log: Any) -> None:
        self._log = log
        self._seconds = Histogram(
            "lasthop_event_loop_stall_seconds",
            f"How long the event loop was held up, each time that it was for more than {STALL:g} s.",
            buckets=BUCKETS,
            registry=registry,
        )
        self._beat: float | None = None
        self._told = False

    async def watch(self) -> None:
        """Watches the running event loop until it is cancelled."""
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
        """Takes note that the event loop runs."""
        held = self._held(now)
        self._beat, self._told = now, False
        if held >= STALL:
            self._seconds.observe(held)
            self._log.warning("the event loop was held up", seconds=round(held, 1))

    def look(self, now: float, thread: int) -> None:
        """Says once where the event loop is if it does not run."""
        if self._held(now) >= STALL and not self._told:
            self._told = True
            frame = sys._current_frames().get(thread)
            self._log.warning("the event loop does not run", stack=stack(frame))

    def _held(self, now: float) -> float:
        return 0.0 if self._beat is None else now - self._beat - BEAT


def stack(frame: FrameType | None) -> str:
    """Returns where a thread is, the innermost function first."""
    places: list[str] = []
    while frame is not None and len(places) < MAX_FRAMES:
        file = "/".join(PurePath(frame.f_code.co_filename).parts[-2:])
        places.append(f"{frame.f_code.co_name} ({file}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
