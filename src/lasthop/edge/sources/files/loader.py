"""Loads the folder as objects: decides which files are good or broken, and which objects change.

    look() -> Readings      reads the files; changes nothing
    apply() -> Batch        applies readings
    save()                  writes last good contents to the state directory

A broken file is never applied in part. Its last good content stays in force, even after a restart. Deleting a file deletes
its objects and its last good content.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import RejectedPolicy
from lasthop.edge.admission.chain import AdmittedObject
from lasthop.edge.admission.limits import LARGE_FILE
from lasthop.edge.sources.files import report
from lasthop.edge.sources.files.content import BrokenFile, FileContent, ObjectEntry, digest, examine, restore
from lasthop.edge.sources.files.file_set import (
    FileReading,
    FileSet,
    ManifestFile,
    Readings,
    after,
    crashed,
    emptied,
    is_blank,
    read_text,
    unreadable,
)
from lasthop.edge.sources.files.folder import FilesError, Identity, Scan, Stamp, in_turn, scan, stamp_of, team_of
from lasthop.edge.sources.files.local_files import LocalFiles
from lasthop.edge.sources.files.object_set import ObjectSet
from lasthop.edge.sources.files.state import NoState, SavedFile
from lasthop.edge.sources.source import Batch
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.not_applied import NotApplied, moment

AT_ONCE: Final = 200
"""Files that are read before the folder is checked again, which takes some 150 ms. They are applied together."""
AT_ONCE_SECONDS: Final = 0.3
"""CPU time of such reads, because a file with maximum lists takes a hundred times as long as others."""


MOST_EDITED: Final = 5000
"""Objects whose last edited file is recorded."""
Progress = Callable[[int, int], None]
"""Called with the number of files read, and of files to read."""


class _Postponed(NamedTuple):
    """Collects the files that are postponed to a later read."""

    large: set[str]
    later: set[str]

    @property
    def teams(self) -> set[str]:
        """Returns the teams with files left for later."""
        return {team_of(path) for path in self.later}


class _EarlierObject(NamedTuple):
    """Describes an object as it was before its file was edited while Lasthop was not running."""

    path: Path
    object: Object | None
    """None if it did not exist."""

    def differs(self, chosen: tuple[str, ObjectEntry] | None) -> bool:
        return self.object != (chosen[1].admitted.object if chosen else None)


class Loader:
    def __init__(self, directory: Path, state: NoState | None = None, allowed: Iterable[Path] = ()) -> None:
        """Local files may be below the folder or below `allowed`."""
        self.root = Path(os.path.abspath(directory))
        self._directory = directory
        self._shown_prefix = str(directory / "_").removesuffix("_")
        self._state = state or NoState()
        self._lock = threading.Lock()
        """Held because a worker thread applies readings while other threads locate objects."""
        self._files = FileSet()
        self._objects = ObjectSet()
        self._local = LocalFiles(self.root, allowed, self._state)
        self._local_findings: dict[Key, tuple[Finding, ...]] = {}
        self._older_pairs: dict[Key, NotApplied] = {}
        self._rejected: dict[Key, RejectedPolicy] = {}
        self._closed: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._linked: tuple[str, ...] = ()
        self._folders: dict[str, Identity] = {}
        self._lost = ""
        self._pending: frozenset[str] = frozenset()
        """Large files whose current text is still being read."""
        self._last_team = ""
        """The team of the last file read, if not all could be read."""
        self._published: Batch | None = None
        self._edited: dict[Key, Path] = {}
        """The file in which each object was last edited since the start. It may be a local file that supplies content."""
        self._unsaved: dict[str, SavedFile | None] = {}
        self._save_error = ""

    # -- reading

    def look(
        self,
        files: Iterable[str] | None = None,
        local: Iterable[str] = (),
        *,
        before: Readings | None = None,
        leave_large: bool = False,
        progress: Progress = lambda read, files: None,
    ) -> Readings:
        """Reads these files (paths below the folder) and local files, or everything that has changed.

        A file that is unchanged since the readings `before` is not parsed again. With `leave_large`, large files and files
        beyond the limit are only named. `progress` is called after each file. Raises `FilesError` if the folder cannot be
        read the first time; later, an unreadable folder is an ordinary reading.
        """
        postponed = _Postponed(set(), set()) if leave_large else None
        if files is not None:
            readings_of_files = _readings(postponed, self._read_files(sorted(files), before, postponed, progress))
            if self.root.is_dir():
                return readings_of_files._replace(local={path: self._local.read(path) for path in local})
            # While the whole folder is being deleted, its files disappear one by one. That is not an edit of each file.
        try:
            listing = scan(self.root)
        except FilesError as error:
            if self._published is None:
                raise
            return Readings({}, {}, lost=str(error))
        changed = [path for path, stamp in listing.files.items() if not self._files.is_unchanged(path, stamp)]
        readings = self._read_files(changed, before, postponed, progress) | self._read_missing(listing, postponed)
        return _readings(postponed, readings)._replace(
            local=self._local.changed(),
            closed=listing.closed,
            repeated=listing.repeated,
            linked=listing.linked,
            folders=listing.folders,
        )

    def _read_files(
        self, paths: Collection[str], before: Readings | None, postponed: _Postponed | None, progress: Progress
    ) -> dict[str, FileReading]:
        """Reads these files. If files may be `postponed`, it reads only up to the limits."""
        readings: dict[str, FileReading] = {}
        end = time.thread_time() + AT_ONCE_SECONDS
        for path in paths if postponed is None else in_turn(paths, self._last_team):
            if postponed is None or not self._postpone(path, postponed, len(readings), end):
                readings[path] = self._read(path, before)
                self._last_team = team_of(path)
                progress(len(readings), len(paths))
        return readings if postponed is None else self._without_moves(readings, postponed)

    def _without_moves(self, readings: dict[str, FileReading], postponed: _Postponed) -> dict[str, FileReading]:
        """Postpones files that have lost objects, which may have moved into a file that is still to be read."""
        teams = postponed.teams
        postponed.later.update(
            path for path in readings if team_of(path) in teams and self._files.loses(path, readings[path].result)
        )
        return {path: reading for path, reading in readings.items() if path not in postponed.later}

    def _postpone(self, path: str, postponed: _Postponed, read: int, end: float) -> bool:
        """Postpones a file that is large or beyond the limits; returns whether the file was postponed."""
        if read >= AT_ONCE or (read and time.thread_time() >= end):
            postponed.later.add(path)
        elif self._is_large(path):
            postponed.large.add(path)
        else:
            return False
        return True

    def _read_missing(self, listing: Scan, postponed: _Postponed | None) -> dict[str, FileReading]:
        """Returns readings of files that existed and are no longer listed. They are deleted, unless their folder cannot be
        read. If their team has unread files, they are postponed, because their objects may have moved there."""
        readings: dict[str, FileReading] = {}
        teams = postponed.teams if postponed else set()
        for path in self._remembered() - listing.files.keys():
            if reason := _closed_above(path, listing.closed):
                readings[path] = FileReading(unreadable(self._shown(path), f"its folder cannot be read ({reason})"))
            elif postponed and team_of(path) in teams:
                postponed.later.add(path)
            else:
                readings[path] = FileReading(None)
        return readings

    def _is_large(self, path: str) -> bool:
        stamp = stamp_of(self.root / path)
        return stamp is not None and stamp.size > LARGE_FILE

    def unsettled(self, readings: Readings) -> bool:
        """Returns whether a file may be only partly written, so that it should be read again before it is applied."""
        return any(self._files.may_be_half_written(path, reading.result) for path, reading in readings.files.items()) or any(
            self._local.worse(path, now) for path, now in readings.local.items()
        )

    def _read(self, path: str, before: Readings | None = None) -> FileReading:
        """Reads a file. If its content triggers a bug in Lasthop, only this file counts as broken."""
        try:
            return self._examined(path, before)
        except Exception as error:
            return FileReading(crashed(self._shown(path), error), stamp_of(self.root / path))

    def _examined(self, path: str, before: Readings | None) -> FileReading:
        last = before.files.get(path) if before else None
        if last and last.stamp and last.stamp == stamp_of(self.root / path):
            return last
        text = read_text(self.root / path, self._shown(path))
        if isinstance(text, FileReading):
            return text
        reading = self._of_text(path, *text)
        if is_blank(reading.result) and self._had_objects(path):
            return FileReading(emptied(self._shown(path)), reading.stamp)
        return reading

    def _of_text(self, path: str, text: bytes, stamp: Stamp) -> FileReading:
        """Returns the known result for this text, possibly from before a restart, or parses it."""
        text_digest, file = digest(text), self._files.get(path)
        if file and (result := file.of_text(text_digest)):
            return FileReading(result, stamp, file.written)
        saved = None if file else self._saved(path)
        if saved and saved.digest == text_digest and saved.stored is not None and (restored := restore(text, saved.stored)):
            return FileReading(restored, stamp, saved.written)
        result, stored = examine(self._shown(path), text)
        return FileReading(result, stamp, stamp.mtime, stored)

    def _had_objects(self, path: str) -> bool:
        before = self._before(path)
        return bool(before and before.good and before.good.entries)

    def _saved(self, path: str) -> SavedFile | None:
        return self._state.last_good(os.path.join(self.root, path))

    def _before(self, path: str) -> ManifestFile | None:
        """Returns the file's previous state, possibly saved before a restart."""
        if (file := self._files.get(path)) or (saved := self._saved(path)) is None:
            return file
        if saved.stored is not None and (good := restore(saved.text, saved.stored)):
            return ManifestFile(good, written=saved.written)
        content, _ = examine(self._shown(path), saved.text)
        return ManifestFile(content, written=saved.written) if isinstance(content, FileContent) else None

    def _remembered(self) -> set[str]:
        """Returns the files known since the start, or, at the first look, before the restart."""
        if self._published is not None:
            return set(self._files)
        prefix = f"{self.root}{os.sep}"
        return {path.removeprefix(prefix) for path in self._state.paths() if path.startswith(prefix)}

    # -- applying

    def apply(self, readings: Readings) -> Batch | None:
        """Returns the changes by these readings; None without changes."""
        with self._lock:
            return self._apply(readings)

    def _apply(self, readings: Readings) -> Batch | None:
        self._lost, self._pending = readings.lost, readings.large
        earlier = self._earlier(readings) if self._published is None else {}
        touched = self._apply_files(readings)
        if self._published:
            self._edited |= touched
        while len(self._edited) > MOST_EDITED:
            del self._edited[next(iter(self._edited))]
        selected = self._objects.choose(touched)
        edited = {} if self._published else self._edited_while_stopped(earlier, selected)
        changes = self._objects.put({key: self._filled(key, chosen) for key, chosen in selected.items()})
        changes |= self._reject()
        refused = {
            path: report.not_applied(self._shown(path), broken, self._files.get(path)) for path, broken in self._files.broken
        }
        batch = Batch(
            changes,
            tuple(self._findings(refused)),
            unknown=self._unknown(),
            not_applied=(*refused.values(), *(pair for _, pair in sorted(self._older_pairs.items()))),
            complete=not self._pending,
            edited=edited,
        )
        previous, self._published = self._published, batch
        if previous and not changes and batch == msgspec.structs.replace(previous, changes=changes, edited={}):
            return None
        return batch

    def _earlier(self, readings: Readings) -> dict[Key, _EarlierObject]:
        """Returns the earlier objects of files that were edited while Lasthop was not running. Empty at the first start."""
        earlier: dict[Key, _EarlierObject] = {}
        if not self._remembered():
            return earlier
        # Deleted files come first, because an object that has moved was edited in the file that has it now.
        for path, reading in sorted(readings.files.items(), key=lambda item: item[1].result is not None):
            saved, present = self._edited_content(path, reading)
            for key in saved.keys() | present:
                moved = earlier[key].object if key in earlier else None
                earlier[key] = _EarlierObject(self.root / path, saved.get(key, moved))
        return earlier

    def _edited_while_stopped(
        self, earlier: Mapping[Key, _EarlierObject], selected: Mapping[Key, tuple[str, ObjectEntry] | None]
    ) -> dict[Key, bool]:
        """Records the objects that differ from their earlier version, and returns whether each existed before."""
        edited = {key: obj.object is not None for key, obj in earlier.items() if obj.differs(selected.get(key))}
        local = self._local.edited_while_stopped()
        self._edited |= {key: earlier[key].path for key in edited} | local
        return edited | dict.fromkeys(local, True)

    def _edited_content(self, path: str, reading: FileReading) -> tuple[dict[Key, Object], set[Key]]:
        """Returns the objects of a file that an earlier process saved, and the keys of its present objects. Both are empty if
        the file is unchanged, or is broken, because then its last good content stays."""
        content = reading.result
        if isinstance(content, BrokenFile) or (content and reading.stored is None):
            return {}, set()
        saved = self._saved(path)
        if content and saved and content.digest == saved.digest:
            return {}, set()
        before = self._before(path)
        return before.good.objects if before and before.good else {}, content.keys if content else set()

    def _unknown(self) -> tuple[Unknown, ...]:
        """Returns the parts that may contain an unread policy, whether or not an older text of them is in force."""
        return (
            *(report.of_pending(self._shown(path)) for path in sorted(self._pending)),
            *(report.of_closed(self._shown(path), why) for path, why in sorted(self._closed.items())),
            *(unknown for _, broken in self._files.broken for unknown in report.of_opaque(broken)),
        )

    def _apply_files(self, readings: Readings) -> dict[Key, Path]:
        """Returns the objects that may change, each with the edited file."""
        if readings.closed is not None:
            self._closed, self._repeated, self._linked = readings.closed, readings.repeated or {}, readings.linked or ()
            self._folders = readings.folders or {}
        touched: dict[Key, Path] = {}
        for path, reading in readings.files.items():
            touched.update(dict.fromkeys(self._apply_file(path, reading), self.root / path))
        self._local.tidy()
        for path, now in readings.local.items():
            touched.update(dict.fromkeys(self._local.apply(path, now), Path(path)))
        return touched

    def _apply_file(self, path: str, reading: FileReading) -> set[Key]:
        previous = self._files.good(path)
        file = after(self._before(path) if isinstance(reading.result, BrokenFile) else None, reading)
        self._files.put(path, file)
        if file is None:
            self._unsaved[path] = None
        elif file.good and not file.broken and reading.stored is not None:
            self._unsaved[path] = SavedFile(file.good.digest, file.good.text, file.written, reading.stored)
        current = file.good if file else None
        if previous is current:
            return set()
        self._local.use(path, current)
        return self._objects.replace(path, previous, current)

    def _filled(self, key: Key, chosen: tuple[str, ObjectEntry] | None) -> AdmittedObject | None:
        """Returns the chosen object with the content of its local files, and records problems of these files."""
        self._local_findings.pop(key, None)
        self._older_pairs.pop(key, None)
        if chosen is None:
            return None
        file, entry = chosen
        if not entry.admitted.attachments:
            return entry.admitted
        filled = self._local.filled(file, entry)
        placed = [(finding, *self._place(file, entry, finding.field)) for finding in filled.findings]
        if placed:
            self._local_findings[key] = tuple(
                msgspec.structs.replace(finding, file=shown, line=line) for finding, shown, line in placed
            )
        if older := filled.older:
            shown, line = self._place(file, entry, older.field)
            self._older_pairs[key] = NotApplied(shown, line, older.why, moment(older.pair.written), (key,))
        return filled.admitted

    def _reject(self) -> dict[Key, Object | None]:
        """Returns the policies with a changed rejected text, or a changed good text beside it."""
        previous, current = self._rejected, report.rejected([broken for _, broken in self._files.broken], self._objects)
        changed = [key for key in previous | current if previous.get(key) != current.get(key)]
        self._rejected = current
        return {key: current.get(key) or self._objects.objects.get(key) for key in changed}

    def _findings(self, refused: Mapping[str, NotApplied]) -> Iterable[Finding]:
        if self._lost:
            yield make_finding(
                None, reasons.FOLDER_LOST, f"{self._lost} Everything stays as it was.", file=str(self._directory), line=1
            )
        if self._save_error:
            message = f"last good contents cannot be saved: {self._save_error}."
            yield make_finding(None, reasons.STATE_NOT_SAVED, message)
        for path, broken in self._files.broken:
            yield from report.of_broken(refused[path], broken)
        for key in sorted(self._objects.contested):
            owner, files = self._objects.owners[key], self._objects.providers[key]
            places = [self._place(file, files[file]) for file in sorted(files.keys() - {owner})]
            yield from report.of_contested(key, self._place(owner, files[owner]), places)
        yield from report.of_folders(str(self._directory), self._closed, self._repeated)
        for _, findings in sorted(self._local_findings.items()):
            yield from findings

    # -- saving

    def save(self) -> None:
        """Writes to the state directory. An error becomes a finding of the next batch."""
        contents = {os.path.join(self.root, path): saved for path, saved in self._unsaved.items()}
        local, pairs = self._local.unsaved, self._local.pairs.unsaved
        try:
            if contents or local or pairs:
                self._state.save(contents, local, pairs)
        except (sqlite3.Error, OSError) as error:
            self._save_error = str(error)
            return
        self._save_error = ""
        for saved in (self._unsaved, local, pairs):
            saved.clear()

    # -- queries

    def locate(self, key: Key, field_path: str = "") -> tuple[str, int] | None:
        """Returns file and line of an object or a field of it."""
        with self._lock:
            if key in self._objects.owners:
                file = self._objects.owners[key]
                return self._place(file, self._objects.providers[key][file], field_path)
            findings = (finding for _, broken in self._files.broken for finding in broken.findings)
            return next(((finding.file, finding.line) for finding in findings if finding.object == key), None)

    def edited_in(self, key: Key) -> Path | None:
        """Returns the file in which an object was last edited or deleted since the start, or None."""
        with self._lock:
            return self._edited.get(key)

    def _place(self, file: str, entry: ObjectEntry, field_path: str = "") -> tuple[str, int]:
        content = self._files.good(file)
        assert content is not None
        return self._shown(file), content.line(entry, field_path)

    @property
    def others(self) -> Counter[str]:
        """Returns the kinds of foreign documents in the files, with counts."""
        with self._lock:
            return self._files.others

    @property
    def lost(self) -> bool:
        """Returns whether the whole folder cannot be read at present."""
        return bool(self._lost)

    def knows(self, path: str) -> bool:
        return path in self._files

    def knows_below(self, path: str) -> bool:
        return any(file.startswith(f"{path}{os.sep}") for file in self._files)

    @property
    def local_files(self) -> Iterable[str]:
        return self._local.paths

    @property
    def linked(self) -> tuple[str, ...]:
        """Links below the folder, to files and folders."""
        return self._linked

    @property
    def folders(self) -> dict[str, Identity]:
        """The folder and its subfolders at the last listing, by absolute path."""
        return {str(self.root / path): identity for path, identity in self._folders.items()}

    def followed(self) -> Iterable[str]:
        """Yields the paths that may change outside the folder: local files and links, including links in the path of the
        folder."""
        yield from self._local.permitted
        yield from (str(path) for path in (self.root, *self.root.parents) if path.is_symlink())
        for path in self._linked:
            yield str(self.root / path)

    def _shown(self, path: str) -> str:
        return f"{self._shown_prefix}{path}"


def _readings(postponed: _Postponed | None, files: dict[str, FileReading]) -> Readings:
    return (
        Readings(files, {}, large=frozenset(postponed.large), later=frozenset(postponed.later))
        if postponed
        else Readings(files, {})
    )


def _closed_above(path: str, closed: dict[str, str]) -> str:
    return next((why for folder, why in closed.items() if folder == "." or path.startswith(f"{folder}/")), "")
