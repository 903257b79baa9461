"""Says where in the folder, or beside the local files outside it, something happened. What it means the loader finds out.

Two watches: the folder with everything below it, and single folders outside it (without what is below them: one may be a home
directory). Both start when they are made, so what happens between a look at the files and the next `events()` is not lost.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from watchfiles._rust_notify import RustNotify  # documented as the "Rust backend", though its name says otherwise

DEBOUNCE_MS: Final = 50
"""A burst of events is one event, unless it goes on for longer than this."""
STEP_MS: Final = 5
"""The quiet after which a burst is over; the main part of the time from save to effect. 1.5 % of a core when idle."""
OUTSIDE_STEP_MS: Final = 25
"""Certificates change seldom and need not be so quick."""
POLL_MS: Final = 300
"""Where the kernel cannot notify (out of inotify watches, some network file systems)."""


class Events(NamedTuple):
    inside: frozenset[str] = frozenset()
    """Absolute paths below the folder."""
    outside: bool = False


class _Watch:
    def __init__(self, paths: Iterable[str], recursive: bool, step: int, threads: ThreadPoolExecutor) -> None:
        self._stopped = threading.Event()
        self._step = step
        self._threads = threads
        names = sorted(paths)
        try:
            self._notify = RustNotify(names, False, False, POLL_MS, recursive, True)
        except OSError:
            self._notify = RustNotify(names, False, True, POLL_MS, recursive, True)
        self.next = self._wait()

    def take(self) -> frozenset[str]:
        """The events of a finished `next`; waits for more."""
        result = self.next.result()
        self.next = self._wait()
        return frozenset(path for _, path in result) if isinstance(result, set) else frozenset()

    def stop(self) -> None:
        self._stopped.set()

    def _wait(self) -> asyncio.Future[set[tuple[int, str]] | str]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._notify.watch, DEBOUNCE_MS, self._step, 0, self._stopped)


class Watcher:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="watch")
        self._identity = _identity(root)
        self._inside = self._watch_root()
        self._outside: _Watch | None = None
        self._folders: frozenset[str] = frozenset()

    async def events(self, seconds: float, other: Iterable[asyncio.Future[Any]] = ()) -> Events:
        """What happened since last time; nothing if the time is over, or something other is done, first."""
        watches = [watch.next for watch in (self._inside, self._outside) if watch is not None]
        await asyncio.wait({*watches, *other}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        inside = self._inside.take() if self._inside.next.done() else frozenset()
        outside = self._outside is not None and self._outside.next.done() and bool(self._outside.take())
        return Events(inside, outside)

    def watch_outside(self, folders: Iterable[str]) -> bool:
        """True if that changed something: then what happened in them before is not known."""
        wanted = frozenset(folder for folder in folders if not _is_below(folder, self._root))
        if wanted == self._folders:
            return False
        if self._outside is not None:
            self._outside.stop()
        self._outside = _Watch(wanted, False, OUTSIDE_STEP_MS, self._threads) if wanted else None
        self._folders = wanted
        return True

    def follow_root(self) -> bool:
        """True if another folder stands under the name by now; the watch has moved to it."""
        identity = _identity(self._root)
        if identity is None or identity == self._identity:
            return False
        self._inside.stop()
        self._identity = identity
        self._inside = self._watch_root()
        return True

    def close(self) -> None:
        for watch in (self._inside, self._outside):
            if watch is not None:
                watch.stop()
        self._threads.shutdown(wait=False)

    def _watch_root(self) -> _Watch:
        return _Watch([str(self._root)], True, STEP_MS, self._threads)


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_below(folder: str, root: Path) -> bool:
    return folder == str(root) or folder.startswith(f"{root}{os.sep}")
