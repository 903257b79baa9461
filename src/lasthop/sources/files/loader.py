"""The folder as objects: which files are good, which are broken, and what that changes.

    look() -> Readings      what the files say now; nothing is changed by looking
    apply() -> Batch        a reading becomes the truth
    save()                  last good contents go to the state directory

A broken file is never half applied: while it is broken its last good content stays in force, also after a restart. A file that
is deleted takes its objects and its last good content with it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from lasthop.admission.limits import LARGE_FILE
from lasthop.api.meta import Key, Object
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.not_applied import NotApplied
from lasthop.sources.files import report
from lasthop.sources.files.attached import Attached
from lasthop.sources.files.content import Broken, Content, Entry, digest, examine, restore
from lasthop.sources.files.errors import FilesError
from lasthop.sources.files.folder import Stamp, scan, stamp_of
from lasthop.sources.files.in_force import InForce
from lasthop.sources.files.pairs import Pair, PairPaths
from lasthop.sources.files.reading import Reading, Readings, emptied, is_blank, loses, read_file, unreadable
from lasthop.sources.files.state import Saved, State
from lasthop.sources.source import Batch


class _File(msgspec.Struct):
    good: Content | None
    broken: Broken | None
    stamp: Stamp | None
    written: int = 0
    """When the good content was, in nanoseconds."""


class Loader:
    def __init__(self, directory: Path, state: State | None = None, allowed: Iterable[Path] = ()) -> None:
        """Local files may be below the folder, or `allowed`."""
        self.root = Path(os.path.abspath(directory))
        self._directory = directory
        self._state = state
        self._lock = threading.Lock()
        """Readings are applied in a worker thread while others ask where an object is."""
        self._files: dict[str, _File] = {}
        self._broken: dict[str, Broken] = {}
        """The broken ones among them. A change must not cost more the more good files there are."""
        self._in_force = InForce()
        self._attached = Attached(self.root, allowed, self._remembered_local, self._remembered_pair, self._place)
        self._rejected: dict[Key, Object] = {}
        self._closed: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._linked: tuple[str, ...] = ()
        self._lost = ""
        self._pending: frozenset[str] = frozenset()
        """Large files whose present text is still being read."""
        self._published: Batch | None = None
        self._unsaved: dict[str, Saved | None] = {}
        self._save_error = ""

    # -- looking

    def look(
        self,
        files: Iterable[str] | None = None,
        local: Iterable[str] = (),
        *,
        before: Readings | None = None,
        leave_large: bool = False,
    ) -> Readings:
        """At these files (paths below the folder) and local files, or at everything that is not as it was.

        A file that has not changed since the look `before` is not examined again. With `leave_large` the large ones are only
        named.

        Raises `FilesError` if the folder cannot be read the first time; later that is a reading like any other.
        """
        large: set[str] = set()

        def read(paths: Iterable[str]) -> dict[str, Reading]:
            if leave_large:
                large.update(path for path in paths if self._is_large(path))
            return {path: self._read(path, before) for path in paths if path not in large}

        if files is not None:
            found_here = Readings(read(files), {path: self._attached.read(path) for path in local}, large=frozenset(large))
            if self.root.is_dir():
                return found_here
            # While the whole folder is being removed its files go one by one; none of them was meant by itself.
        try:
            found = scan(self.root)
        except FilesError as error:
            if self._published is None:
                raise
            return Readings({}, {}, lost=str(error))
        readings = read([path for path, stamp in found.files.items() if not self._has_stamp(path, stamp)])
        for path in self._remembered() - found.files.keys():
            if why := _closed_above(path, found.closed):
                readings[path] = Reading(unreadable(self._shown(path), f"its folder cannot be read ({why})"))
            else:
                readings[path] = Reading(None)
        return Readings(readings, self._attached.changed(), found.closed, found.repeated, found.linked, frozenset(large))

    def _has_stamp(self, path: str, stamp: Stamp | None) -> bool:
        known = self._files.get(path)
        return known is not None and stamp is not None and known.stamp == stamp

    def _is_large(self, path: str) -> bool:
        stamp = stamp_of(self.root / path)
        return stamp is not None and stamp.size > LARGE_FILE

    def unsettled(self, readings: Readings) -> bool:
        """Whether something in it looks like a write that is not finished: better look again before believing it."""
        for path, reading in readings.files.items():
            if file := self._files.get(path):
                known = file.broken is not None and reading.result == file.broken
                if not known and loses(file.good, reading.result):
                    return True
            elif isinstance(reading.result, Broken):
                return True
        return any(self._attached.worse(path, now) for path, now in readings.local.items())

    def _read(self, path: str, before: Readings | None = None) -> Reading:
        last = before.files.get(path) if before else None
        if last and last.stamp and last.stamp == stamp_of(self.root / path):
            return last
        reading = read_file(self.root / path, self._shown(path), lambda text: self._known(path, text))
        if is_blank(reading.result) and (good := self._last_good(path)) and good.entries:
            return Reading(emptied(self._shown(path)), reading.stamp)
        return reading

    def _known(self, path: str, text: bytes) -> Content | Broken | None:
        """What is known of this text: it is as it was, or was admitted in an earlier life."""
        seen = digest(text)
        if file := self._files.get(path):
            return next((known for known in (file.good, file.broken) if known and known.digest == seen), None)
        saved = self._state.last_good(str(self.root / path)) if self._state else None
        if saved is not None and saved.digest == seen and saved.stored is not None:
            return restore(text, saved.stored)
        return None

    def _last_good(self, path: str) -> Content | None:
        file = self._files.get(path)
        return file.good if file else self._saved(path)[0]

    def _saved(self, path: str) -> tuple[Content | None, int]:
        """The last good content in an earlier life, and when it was written."""
        saved = self._state.last_good(str(self.root / path)) if self._state else None
        if saved is None:
            return None, 0
        if saved.stored is not None:
            return restore(saved.text, saved.stored), saved.written
        again, _ = examine(self._shown(path), saved.text)
        return (again, saved.written) if isinstance(again, Content) else (None, 0)

    def _written(self, path: str) -> int:
        return self._state.written(str(self.root / path)) if self._state else 0

    def _remembered(self) -> set[str]:
        """Files that were there: in this life, or at the start in the one before."""
        if self._published is not None or self._state is None:
            return set(self._files)
        prefix = f"{self.root}{os.sep}"
        return {path.removeprefix(prefix) for path in self._state.paths() if path.startswith(prefix)}

    # -- believing

    def apply(self, readings: Readings) -> Batch | None:
        """What changes by these readings; None if nothing does."""
        with self._lock:
            return self._apply(readings)

    def _apply(self, readings: Readings) -> Batch | None:
        self._lost, self._pending = readings.lost, readings.large
        if readings.closed is not None:
            self._closed, self._repeated, self._linked = readings.closed, readings.repeated or {}, readings.linked or ()
        touched: set[Key] = set()
        for path, reading in readings.files.items():
            touched |= self._apply_file(path, reading)
        self._attached.tidy()
        for path, now in readings.local.items():
            touched |= self._attached.apply(path, now)
        for key in touched:
            self._attached.forget(key)
        changes = self._in_force.settle(touched, self._attached.complete)
        changes |= self._reject()
        refused = self._not_applied()
        batch = Batch(
            changes,
            tuple(self._findings(refused)),
            self._policies_known(),
            not_applied=(*refused.values(), *self._attached.not_applied()),
            complete=not self._pending,
            policies_doubtful=bool(self._closed) or any(broken.opaque for broken in self._broken.values()),
        )
        previous, self._published = self._published, batch
        if previous and not changes and batch == msgspec.structs.replace(previous, changes=changes):
            return None
        return batch

    def _apply_file(self, path: str, reading: Reading) -> set[Key]:
        before = self._files.get(path)
        old = before.good if before else None
        self._broken.pop(path, None)
        match reading.result:
            case None:
                new = None
                self._files.pop(path, None)
                self._unsaved[path] = None
            case Broken() as broken:
                new, written = (before.good, before.written) if before else self._saved(path)
                if new is not None and not new.entries:
                    new = None  # nothing is no content to fall back on: what the file holds now may be its first policy
                self._files[path] = _File(new, broken, reading.stamp, written)
                self._broken[path] = broken
            case Content() as new:
                written = reading.stamp.mtime if reading.stamp else 0
                if reading.stored is None:  # it is not new, whenever the file was written last
                    written = before.written if before else self._written(path)
                self._files[path] = _File(new, None, reading.stamp, written)
                if reading.stored is not None:
                    self._unsaved[path] = Saved(new.digest, new.text, written, reading.stored)
        if old is new:
            return set()
        self._attached.use(path, new)
        return self._in_force.replace(path, old, new)

    def _reject(self) -> dict[Key, Object | None]:
        now = report.rejected([broken for _, broken in sorted(self._broken.items())], self._in_force)
        changes: dict[Key, Object | None] = {key: None for key in self._rejected.keys() - now.keys()}
        changes |= {key: policy for key, policy in now.items() if self._rejected.get(key) != policy}
        self._rejected = dict(now)
        return changes

    def _policies_known(self) -> bool:
        # A policy may just have moved into a file that takes long to read.
        if self._pending or any(broken.opaque and self._files[path].good is None for path, broken in self._broken.items()):
            return False
        return all(
            any(path.startswith(f"{folder}/") and self._files[path].good is not None for path in self._broken)
            for folder in self._closed
        )

    def _not_applied(self) -> dict[str, NotApplied]:
        return {
            path: report.not_applied(self._shown(path), broken, self._files[path].good, self._files[path].written)
            for path, broken in sorted(self._broken.items())
        }

    def _findings(self, refused: Mapping[str, NotApplied]) -> Iterable[Finding]:
        if self._lost:
            yield Finding(None, "FolderLost", f"{self._lost} Everything stays as it was.", file=str(self._directory), line=1)
        if self._save_error:
            said = f"last good contents cannot be saved: {self._save_error}."
            yield Finding(None, "StateNotSaved", said, "Check the state directory.", severity=Severity.WARNING)
        for path, each in refused.items():
            yield from report.of_broken(each, self._broken[path])
        yield from report.of_contested(self._in_force, self._place)
        yield from report.of_folders(str(self._directory), self._closed, self._repeated)
        yield from self._attached.findings()

    # -- remembering

    def save(self) -> None:
        """Trouble with the state directory is a finding of the next batch."""
        contents = {str(self.root / path): saved for path, saved in self._unsaved.items()}
        try:
            if self._state is not None and (contents or self._attached.unsaved or self._attached.pairs.unsaved):
                self._state.save(contents, self._attached.unsaved, self._attached.pairs.unsaved)
        except (sqlite3.Error, OSError) as error:
            self._save_error = str(error)
            return
        self._save_error = ""
        self._unsaved.clear()
        self._attached.unsaved.clear()
        self._attached.pairs.unsaved.clear()

    def _remembered_local(self, path: str) -> bytes | None:
        return self._state.local_file(path) if self._state else None

    def _remembered_pair(self, paths: PairPaths) -> Pair | None:
        return self._state.pair(paths) if self._state else None

    # -- answering

    def locate(self, key: Key, field_path: str = "") -> tuple[str, int] | None:
        """Where an object, or a field of it, is written."""
        with self._lock:
            if key in self._in_force.owners:
                file = self._in_force.owners[key]
                return self._place(file, self._in_force.providers[key][file], field_path)
            findings = (finding for broken in self._broken.values() for finding in broken.findings)
            return next(((finding.file, finding.line) for finding in findings if finding.object == key), None)

    def _place(self, file: str, entry: Entry, field_path: str = "") -> tuple[str, int]:
        content = self._files[file].good
        assert content is not None
        return self._shown(file), content.line(entry, field_path)

    @property
    def lost(self) -> bool:
        """The folder as a whole cannot be read at present."""
        return bool(self._lost)

    def knows(self, path: str) -> bool:
        return path in self._files

    def knows_below(self, path: str) -> bool:
        return any(known.startswith(f"{path}{os.sep}") for known in self._files)

    @property
    def local_files(self) -> Iterable[str]:
        return self._attached.paths

    @property
    def linked(self) -> tuple[str, ...]:
        """Files and folders below the folder that are links."""
        return self._linked

    def followed(self) -> Iterable[str]:
        """What may be changed from outside the folder: absolute paths of local files and of links."""
        yield from self._attached.permitted
        for path in self._linked:
            yield str(self.root / path)

    def _shown(self, path: str) -> str:
        return str(self._directory / path)


def _closed_above(path: str, closed: dict[str, str]) -> str:
    return next((why for folder, why in closed.items() if path.startswith(f"{folder}/")), "")
