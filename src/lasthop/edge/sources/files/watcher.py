"""Reports paths that have changed in the folder or beside local files outside it.

There are two watches: the folder with its subfolders, and folders outside that contain link targets and local files. All
folders are watched one by one, because a recursive watch would follow links, and a link may lead to the whole machine. An
awaited watch is running, so no event is lost between reading the files and the next `events()`.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import FIRST_COMPLETED
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from lasthop.edge.sources.files.folder import Identity

DEBOUNCE_MS: Final = 50
"""Maximum duration of a burst of events that counts as one event."""
STEP_MS: Final = 5
"""The quiet time that ends a burst, which is most of the time from save to effect. It takes 1.5 % of a core when idle."""
OUTSIDE_STEP_MS: Final = 25
"""The quiet time for folders outside. It is longer because certificates change seldom."""
POLL_MS: Final = 300
"""Interval of polling if the kernel cannot notify (out of inotify watches, some network file systems)."""
RETRY: Final = 0.3
"""Seconds before a failed watch is started again, so that repeated failures do not keep the process busy."""
FAILURES: Final = (OSError, RuntimeError, UnicodeError)
"""The exceptions of watchfiles: no inotify watches left, and names that are not UTF-8."""


class Events(NamedTuple):
    inside: frozenset[str] = frozenset()
    """Absolute paths below the folder."""
    outside: bool = False


class _StopEvent:
    """Ends a watch. watchfiles polls it repeatedly, for the first time when the watch is running."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.running = asyncio.Event()
        self.stopped = False

    def is_set(self) -> bool:
        if not self.running.is_set():
            self._loop.call_soon_threadsafe(self.running.set)
        return self.stopped


class _Watch:
    def __init__(self, paths: Iterable[str], step: int, threads: ThreadPoolExecutor, poll: bool = False) -> None:
        import watchfiles  # commands read a folder once, without a watch

        self._threads = threads
        self._stop = _StopEvent()
        self._changes = watchfiles.watch(
            *paths,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=step,
            stop_event=self._stop,
            rust_timeout=0,
            force_polling=poll,
            poll_delay_ms=POLL_MS,
            recursive=False,
            ignore_permission_denied=True,
        )
        self.next = self._wait()

    async def running(self) -> None:
        """Returns once every change is noticed. Raises `OSError` if the kernel cannot notify."""
        self.next.add_done_callback(lambda _: self._stop.running.set())
        await self._stop.running.wait()
        if self.next.done():
            self.next.result()

    def take(self) -> frozenset[str]:
        """Returns the paths of a finished `next`, and waits for more."""
        result = self.next.result()
        self.next = self._wait()
        return frozenset(path for _, path in result)

    def stop(self) -> None:
        self._stop.stopped = True

    def _wait(self) -> asyncio.Future[set[tuple[Any, str]]]:
        return asyncio.get_running_loop().run_in_executor(self._threads, next, self._changes, set())


class Watcher:
    """Watches nothing until `follow()` has been awaited for the first time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="watch")
        self._followed: dict[str, Identity] = {}
        self._inside: _Watch | None = None
        self._outside: _Watch | None = None
        self._folders: frozenset[str] = frozenset()

    async def events(self, seconds: float, futures: Iterable[asyncio.Future[Any]] = ()) -> Events:
        """Returns the events since the last call; none if the time is over, or one of `futures` is done, first."""
        awaited = {watch.next for watch in (self._inside, self._outside) if watch is not None}.union(futures)
        await (asyncio.wait(awaited, timeout=seconds, return_when=FIRST_COMPLETED) if awaited else asyncio.sleep(seconds))
        try:
            inside, outside = (
                watch.take() if watch is not None and watch.next.done() else frozenset()
                for watch in (self._inside, self._outside)
            )
        except FAILURES:
            await asyncio.sleep(RETRY)
            return self._begin_again()
        return Events(inside, bool(outside))

    def _begin_again(self) -> Events:
        """Discards both watches, so that they are started again. Missed changes may be anywhere."""
        self.stop()
        self._inside = self._outside = None
        self._followed, self._folders = {}, frozenset()
        return Events(frozenset([str(self._root)]))

    async def watch_outside(self, folders: Iterable[str]) -> bool:
        """Watches these folders; returns True if they differ from before, because events in them were missed."""
        unfollowed = frozenset(folders).difference(self._followed)
        if unfollowed == self._folders:
            return False
        if self._outside is not None:
            self._outside.stop()
        self._outside = await self._watch(unfollowed, OUTSIDE_STEP_MS) if unfollowed else None
        self._folders = unfollowed
        return True

    async def follow(self, folders: Mapping[str, Identity]) -> bool:
        """Watches the folder and its listed subfolders; returns True if they differ from before."""
        if folders == self._followed:
            return False
        if self._inside is not None:
            self._inside.stop()
        self._inside = await self._watch(folders, STEP_MS)
        self._followed = dict(folders)
        return True

    def replaced(self) -> bool:
        """Returns whether another folder has taken the root's name."""
        identity = _identity(self._root)
        return identity is not None and identity != self._followed.get(str(self._root))

    def stop(self) -> None:
        for watch in (self._inside, self._outside):
            if watch is not None:
                watch.stop()

    def close(self) -> None:
        self.stop()
        self._threads.shutdown(wait=False)

    async def _watch(self, paths: Iterable[str], step: int) -> _Watch | None:
        """Starts a watch; returns None if the paths cannot be watched, so that only full reads find changes."""
        names = sorted(paths)
        for poll in (False, True):
            watch = _Watch(names, step, self._threads, poll)
            try:
                await watch.running()
            except FAILURES:
                continue
            except asyncio.CancelledError:
                watch.stop()  # its thread would keep the process alive
                raise
            return watch
        return None


def _identity(root: Path) -> Identity | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino
