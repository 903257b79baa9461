"""Ends a `lasthop run`: drains its proxies, or leaves them to the next one.

| signal | what follows |
|---|---|
| SIGINT (Ctrl-C) | drains |
| SIGTERM | drains; with --handover it leaves, unless systemd stops the unit for good |
| SIGUSR2 (`lasthop run --replace`) | leaves |
| SIGHUP | leaves, and restarts in the same process; drains if its terminal has closed |

A signal after a SIGHUP prevails: no new process is started, and proxies that would be drained are stopped by the cleanup
process (`lasthop stop --left`).
"""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from lasthop.edge.proxy import handover
from lasthop.run.host import ANNOUNCE_INTERVAL, HostRuntime
from lasthop.run.infra import systemd

START_SECONDS: Final = 15.0
"""Seconds after which systemd is notified that the gateway runs although it is not ready and waits for a corrected folder."""


class Ending(enum.Enum):
    DRAINED = enum.auto()
    LEFT = enum.auto()
    """The proxies are left to the next Lasthop."""
    AGAIN = enum.auto()
    """Like LEFT, and this process becomes the next Lasthop."""


class Endings:
    """Determines the ending from the signals."""

    def __init__(self, runtime: HostRuntime, seconds: int) -> None:
        """`seconds` is the value of --handover; 0: SIGTERM drains."""
        self._runtime, self._handover = runtime, bool(seconds)
        self.ending = Ending.DRAINED
        self._seconds = seconds or handover.DEFAULT_SECONDS
        """Seconds for which left proxies serve without a Lasthop."""
        self._terminated = asyncio.Event()

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        for number, handler in (
            (signal.SIGINT, self._drain),
            (signal.SIGTERM, self._terminate),
            (signal.SIGUSR2, lambda: self._leave(Ending.LEFT)),
            (signal.SIGHUP, self._hang_up),
        ):
            # Ignored signals (nohup) stay ignored.
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, handler)

    def _drain(self) -> None:
        systemd.notify("STOPPING=1")
        if self.ending is Ending.DRAINED:
            self._runtime.stop()
        else:
            self.ending, self._seconds = Ending.LEFT, 0

    def _terminate(self) -> None:
        if self._handover and (self.ending is not Ending.DRAINED or not self._runtime.processes.stopping):
            self._terminated.set()
        else:
            self._drain()

    async def run(self) -> None:
        """Handles SIGTERM."""
        await self._terminated.wait()
        await self._decide()

    async def _decide(self) -> None:
        """Decides how to handle a SIGTERM: `systemctl stop` and `systemctl restart` send the same signal."""
        if await asyncio.to_thread(systemd.is_stopped_for_good):
            self._drain()
        else:
            self._leave(Ending.LEFT)

    async def leave(self, run_dir: Path) -> None:
        """Leaves the proxies for a while, with a process that stops them if no Lasthop starts. Handles signals meanwhile."""
        announced = None
        while announced != self._seconds:
            announced = self._seconds
            await asyncio.to_thread(_leave, run_dir, announced)
            if self.ending is Ending.AGAIN and self._terminated.is_set():
                await self._decide()

    def _hang_up(self) -> None:
        if any(stream.isatty() for stream in (sys.stdin, sys.stderr)):
            self._drain()
        elif not self._runtime.processes.stopping:
            systemd.reloading()
            self._leave(Ending.AGAIN)

    def _leave(self, ending: Ending) -> None:
        if self.ending is Ending.AGAIN or not self._runtime.processes.stopping:
            self.ending = ending
            outcome = "and Lasthop restarts" if ending is Ending.AGAIN else f"left to the next Lasthop for {self._seconds} s"
            self._runtime.controller.log.info(f"the proxies keep serving, {outcome}")
            self._runtime.leave()


def _leave(run_dir: Path, seconds: int) -> None:
    left = handover.write_handover(run_dir, seconds)
    command = [sys.executable, "-m", "lasthop.cli.main", "stop", str(run_dir), "--left", left.token]
    quiet = subprocess.DEVNULL
    subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True, check=False)


def start_anew() -> None:
    """Replaces this process with a new one of the same command, with the Lasthop and Python that are installed now."""
    os.execv(sys.executable, [sys.executable, *(arg for arg in sys.orig_argv[1:] if arg != "--replace")])


async def tell_systemd(runtime: HostRuntime) -> None:
    """Notifies systemd of readiness, or of the reason against it after `START_SECONDS`. Otherwise systemd would stop the
    process, and edits of the folder would have no effect."""
    since, announced = time.monotonic(), ""
    while True:
        problems = runtime.unready() if runtime.controller.settled else ["the folder is being read"]
        state = f"not ready: {problems[0]}" if problems else "ready"
        if state != announced and (not problems or time.monotonic() - since > START_SECONDS):
            announced = state
            systemd.notify("READY=1", systemd.status(state))
        await asyncio.sleep(ANNOUNCE_INTERVAL)
