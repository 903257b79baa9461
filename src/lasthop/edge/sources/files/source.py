"""Watches a folder of YAML files and yields batches of objects."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from lasthop.base import gc_pause
from lasthop.base.api.meta import Key
from lasthop.edge.admission.limits import LARGE_FILE
from lasthop.edge.sources.files.authors import Authors
from lasthop.edge.sources.files.file_set import FileReading, Readings
from lasthop.edge.sources.files.folder import Stamp, is_manifest, is_misnamed, is_read, is_text, stamp_of
from lasthop.edge.sources.files.loader import Loader, Progress
from lasthop.edge.sources.files.local_file import folders_to_watch
from lasthop.edge.sources.files.state import StateDirectory
from lasthop.edge.sources.files.watcher import Events, Watcher
from lasthop.edge.sources.source import Batch, ObjectSource

HALF_WRITTEN_WAIT: Final = 0.04
"""Seconds before a file counts as deleted, empty, broken or shorter, because editors truncate before they write."""
MAX_HALF_WRITTEN_WAITS: Final = 5
"""Maximum number of waits while a file is being written."""
RESCAN: Final = 10.0
"""Seconds after which everything is read even without events, because notifications get lost (full queues, network file
systems)."""
RESCAN_SHARE: Final = 0.002
"""The share of a core that these reads may take. With more files they are less frequent."""
RESCAN_SELDOM: Final = 600.0
"""Upper limit of that interval."""
RESCAN_LOST: Final = 0.5
"""The interval while the folder is missing, because its return causes no notification."""


class ReadRequest(NamedTuple):
    """Selects the paths to read. None in `files` means everything."""

    files: frozenset[str] | None
    local: frozenset[str] = frozenset()


EVERYTHING: Final = ReadRequest(None)
NONE: Final[frozenset[str]] = frozenset()


class FilesSource(ObjectSource):
    def __init__(
        self,
        directory: Path,
        state: Path | None = None,
        allow_files: Iterable[Path] = (),
        progress: Progress = lambda read, files: None,
    ) -> None:
        """`state` keeps last good contents; without it they last as long as the process. `allow_files` are files and folders
        outside the folder that `lasthop.dev/file.KEY` may name. `progress` receives the progress of the first reading.

        Raises `FilesError` if the state directory cannot be used.
        """
        self._loader = Loader(directory, StateDirectory(state) if state is not None else None, tuple(allow_files))
        self._progress, self._authors = progress, Authors()
        self._followed: frozenset[str] = frozenset()
        self._large: dict[str, asyncio.Task[Readings]] = {}
        """Large files that are read one after the other while edits of other files take effect."""
        self._one_large = asyncio.Lock()
        self._rescan = RESCAN
        self._later: frozenset[str] = frozenset()
        """Files that the last request only named, to be read next."""

    def load(self) -> Batch:
        """Returns everything once, for commands. Writes nothing.

        Raises `FilesError` if the folder cannot be read.
        """
        batch = self._loader.apply(self._loader.look(progress=self._progress))
        assert batch is not None  # the first batch never is
        return batch

    def locate(self, key: Key, field: str = "") -> tuple[str, int] | None:
        """Returns file and line of an object, or of a field of it (or of its nearest parent)."""
        return self._loader.locate(key, field)

    def author(self, key: Key) -> str:
        """Returns the last editor of an object; empty if it was not edited since the start."""
        path = self._loader.edited_in(key)
        return self._authors.of(path) if path else ""

    @property
    def others(self) -> Counter[str]:
        """Returns the kinds of foreign documents in the files, with counts, without files that are unchanged since the last
        start."""
        return self._loader.others

    async def batches(self) -> AsyncIterator[Batch]:
        """Yields batches without end. Raises `FilesError` at the start if the folder cannot be read."""
        loader = self._loader
        yield await asyncio.to_thread(self._load_to_keep)
        await asyncio.to_thread(loader.save)
        watcher = Watcher(loader.root)
        try:
            await watcher.follow(loader.folders)
            request = EVERYTHING  # reads again now that the folder is watched: changes since the first read went unnoticed
            while True:
                for reading in await self._read(request):
                    batch = await asyncio.to_thread(loader.apply, reading)
                    if batch is not None:
                        yield batch
                await asyncio.to_thread(loader.save)
                replaced = not loader.lost and watcher.replaced()
                if await watcher.follow(loader.folders) or await self._watch_outside(watcher, request) or replaced:
                    request = EVERYTHING
                else:
                    request = await self._next_request(watcher)
        finally:
            watcher.close()
            for task in self._large.values():
                task.cancel()
            loader.save()

    async def _read(self, request: ReadRequest) -> list[Readings]:
        """Returns the readings to apply in order: the requested files, and finished large ones. Each reading names the files
        that are still unread."""
        readings = await self._settled(request)
        self._later = readings.later
        for path in readings.large - self._large.keys():
            self._large[path] = asyncio.ensure_future(self._read_large(path))
        finished = [readings, *self._large_ones_read()]
        pending = self._large.keys() | self._later
        for number in reversed(range(len(finished))):
            files = finished[number].files.keys()
            finished[number] = finished[number]._replace(large=frozenset(pending))
            pending |= files
        return finished

    def _load_to_keep(self) -> Batch:
        with gc_pause.frozen():
            return self.load()

    async def _settled(self, request: ReadRequest, leave_large: bool = True) -> Readings:
        """Reads the files, again while they may be only partly written."""
        read = partial(self._loader.look, request.files, request.local, leave_large=leave_large)
        readings, seconds = await asyncio.to_thread(_timed, read)
        if request.files is None:
            self._rescan = rescan_after(seconds)
        for _ in range(MAX_HALF_WRITTEN_WAITS):
            if not self._loader.unsettled(readings):
                break
            await asyncio.sleep(HALF_WRITTEN_WAIT)
            previous, readings = readings, await asyncio.to_thread(read, before=readings)
            if readings.same_as(previous):
                break
        return readings

    async def _read_large(self, path: str) -> Readings:
        async with self._one_large:
            return await self._settled(ReadRequest(frozenset([path])), leave_large=False)

    def _large_ones_read(self) -> Iterator[Readings]:
        for path in [path for path, task in self._large.items() if task.done()]:
            readings = self._large.pop(path).result()
            reading, now = readings.files.get(path), stamp_of(self._loader.root / path)
            if reading and _has_changed(reading, now):
                self._large[path] = asyncio.ensure_future(self._read_large(path))
                if not reading.stamp or not now or now.size <= LARGE_FILE:
                    continue  # the current content may be in force already
            yield readings

    async def _next_request(self, watcher: Watcher) -> ReadRequest:
        if self._later:
            request = request_for(await watcher.events(0, self._large.values()), self._loader)
            return ReadRequest(None if request.files is None else request.files | self._later, request.local)
        clock = asyncio.get_running_loop().time
        rescan = clock() + (RESCAN_LOST if self._loader.lost else self._rescan)
        while (remaining := rescan - clock()) > 0:
            request = request_for(await watcher.events(remaining, self._large.values()), self._loader)
            if request.files is None or request.files or request.local or any(task.done() for task in self._large.values()):
                return request
        return EVERYTHING

    async def _watch_outside(self, watcher: Watcher, request: ReadRequest) -> bool:
        """Watches paths outside the folder; returns whether the set of paths has changed."""
        outside = frozenset(self._loader.followed())
        if outside == self._followed and request.files is not None and not request.local:
            return False  # no link can have changed, and there may be thousands to follow
        self._followed = outside
        return await watcher.watch_outside(await asyncio.to_thread(_folders, outside))


def _has_changed(reading: FileReading, now: Stamp | None) -> bool:
    """Returns whether a file has changed since it was read. An unreadable file counts as unchanged."""
    return now != reading.stamp and (reading.stamp is not None or reading.result is None)


def request_for(events: Events, loader: Loader) -> ReadRequest:
    """Returns the files that the events affect. Other names (editors' backups, .git) are ignored."""
    files: frozenset[str] = NONE
    local: set[str] = set()
    local_files = set(loader.local_files)
    if events.outside:
        if loader.linked:
            return EVERYTHING
        local |= local_files
    for path in events.inside:
        if path in local_files:
            local.add(path)
        affected = _affected(path, os.path.relpath(path, loader.root), loader)
        if affected is None:
            return EVERYTHING
        files |= affected
    return ReadRequest(frozenset(files), frozenset(local))


def _affected(path: str, name: str, loader: Loader) -> frozenset[str] | None:
    """Returns the file that an event at `path` affects, if any; None if it may affect every file. `name` is the path below
    the folder."""
    below, base = f"{os.sep}{name}", os.path.basename(name)
    if f"{os.sep}." in below:
        # The folder itself, or the ..data link of a mounted ConfigMap; other hidden names are ignored.
        return None if name == "." or f"{os.sep}.." in below else NONE
    if is_misnamed(base):
        return None
    if not is_read(name):
        return NONE
    if loader.knows(name) or _is_manifest_at(path):
        return frozenset([name])
    return None if os.path.isdir(path) or loader.knows_below(name) else NONE


def _is_manifest_at(path: str) -> bool:
    """Returns whether this path is a manifest, even a dangling link."""
    return is_manifest(os.path.basename(path)) and os.path.lexists(path) and not os.path.isdir(path)


def rescan_after(seconds: float) -> float:
    """Returns the seconds to wait after a full read that took this much CPU time."""
    return min(max(RESCAN, seconds / RESCAN_SHARE), RESCAN_SELDOM)


def _timed(read: Callable[[], Readings]) -> tuple[Readings, float]:
    """Returns the readings and their CPU time in seconds; waiting for a slow disk does not count."""
    started = time.thread_time()
    return read(), time.thread_time() - started


def _folders(paths: Iterable[str]) -> set[str]:
    return {folder for path in paths for folder in folders_to_watch(path) if is_text(folder)}
