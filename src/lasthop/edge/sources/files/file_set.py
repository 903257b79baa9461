"""Tracks the files of the folder: each file's content, or its problems with its last good content.

A reading is a value and changes nothing. The loader decides when to apply it, and restores content that was saved before a
restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lasthop.edge.admission.limits import MAX_MESSAGE
from lasthop.edge.sources.files.content import EVERYWHERE, BrokenFile, FileContent, StoredDocument, digest
from lasthop.edge.sources.files.folder import Identity, Stamp, TooLarge, UnreadableFile, read, stamp_of
from lasthop.edge.sources.files.local_file import LocalFile
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import make_finding

MAKE_READABLE: Final = "Make it readable for the user that runs Lasthop, or rename or remove it."


class FileReading(NamedTuple):
    result: FileContent | BrokenFile | None
    """None if the file does not exist."""
    stamp: Stamp | None = None
    written: int = 0
    """The time at which the good content was written, in nanoseconds. The file may have been written again since."""
    stored: tuple[StoredDocument, ...] | None = None
    """The admitted documents of a good file, unless they are already on disk."""


class Readings(NamedTuple):
    """Holds the readings of files that may have changed."""

    files: dict[str, FileReading]
    local: dict[str, LocalFile]
    closed: dict[str, str] | None = None
    """Subfolders that cannot be listed, with reasons. This field and the next three are None unless everything was read."""
    repeated: dict[str, str] | None = None
    linked: tuple[str, ...] | None = None
    folders: dict[str, Identity] | None = None
    large: frozenset[str] = frozenset()
    """Large files that are read separately, so that others do not wait for them."""
    later: frozenset[str] = frozenset()
    """Files to read next time, because there are too many at once."""
    lost: str = ""
    """The reason why the whole folder cannot be read."""

    def same_as(self, earlier: Readings) -> bool:
        """Returns whether no file was written between the two readings."""
        return {p: r.stamp for p, r in self.files.items()} == {p: r.stamp for p, r in earlier.files.items()} and {
            p: f.stamp for p, f in self.local.items()
        } == {p: f.stamp for p, f in earlier.local.items()}


def read_text(path: Path, shown: str) -> tuple[bytes, Stamp] | FileReading:
    """Returns a file's text and stamp, or a reading with the reason why it has no text."""
    try:
        return read(path)
    except FileNotFoundError:
        return FileReading(None)
    except TooLarge as error:
        return FileReading(too_large(shown, str(error)), stamp_of(path))
    except UnreadableFile as error:
        return FileReading(unreadable(shown, str(error)))


def unreadable(shown: str, reason: str) -> BrokenFile:
    finding = make_finding(None, reasons.UNREADABLE, f"cannot be read: {reason}.", MAKE_READABLE, file=shown, line=1)
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def crashed(shown: str, error: Exception) -> BrokenFile:
    message = f"cannot be read because of a bug in Lasthop: {type(error).__name__}: {str(error)[:MAX_MESSAGE]}."
    finding = make_finding(None, reasons.INTERNAL_ERROR, message, "Please report it.", file=shown, line=1)
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def too_large(shown: str, reason: str) -> BrokenFile:
    finding = make_finding(
        None, reasons.TOO_LARGE, f"is not read: {reason}.", "Split it into several files.", file=shown, line=1
    )
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def emptied(shown: str) -> BrokenFile:
    """Reports a file that had objects and is now blank, because a full disk or a crashed editor is as likely as intent."""
    remedy = "Delete the file to remove its objects."
    finding = make_finding(None, reasons.EMPTY_FILE, "the file is empty.", remedy, file=shown, line=1)
    return BrokenFile(digest(b""), (finding,))


def is_blank(result: FileContent | BrokenFile | None) -> bool:
    return isinstance(result, FileContent) and not result.text.strip()


class ManifestFile(msgspec.Struct, frozen=True):
    good: FileContent | None
    """Its content, or its last good content while the file is broken."""
    broken: BrokenFile | None = None
    stamp: Stamp | None = None
    written: int = 0
    """The time at which the good content was written, in nanoseconds."""

    def of_text(self, digest: bytes) -> FileContent | BrokenFile | None:
        """Returns the known content with this digest: the current one, or the last good one."""
        return next((content for content in (self.good, self.broken) if content and content.digest == digest), None)


class FileSet:
    def __init__(self) -> None:
        self._files: dict[str, ManifestFile] = {}
        self._broken: dict[str, BrokenFile] = {}
        """The broken files, so that the cost of a change does not grow with the number of good files."""

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def get(self, path: str) -> ManifestFile | None:
        return self._files.get(path)

    def good(self, path: str) -> FileContent | None:
        file = self._files.get(path)
        return file.good if file else None

    def put(self, path: str, file: ManifestFile | None) -> None:
        self._files.pop(path, None)
        self._broken.pop(path, None)
        if file:
            self._files[path] = file
            if file.broken:
                self._broken[path] = file.broken

    @property
    def others(self) -> Counter[str]:
        """Returns the kinds of foreign documents in the files, with counts."""
        return Counter(kind for file in self._files.values() if file.good for kind in file.good.others)

    @property
    def broken(self) -> list[tuple[str, BrokenFile]]:
        return sorted(self._broken.items())

    def is_unchanged(self, path: str, stamp: Stamp | None) -> bool:
        file = self._files.get(path)
        return file is not None and stamp is not None and file.stamp == stamp

    def may_be_half_written(self, path: str, result: FileContent | BrokenFile | None) -> bool:
        """Returns whether the result would remove objects or keep old ones; the file is then read again first."""
        file = self._files.get(path)
        if file is None:
            return isinstance(result, BrokenFile)
        if not isinstance(result, FileContent):
            return file.broken is None or result != file.broken
        return file.good is not None and not file.good.keys <= result.keys

    def loses(self, path: str, result: FileContent | BrokenFile | None) -> bool:
        good = self.good(path)
        if good is None or isinstance(result, BrokenFile):
            return False
        return result is None or not good.keys <= result.keys


def after(before: ManifestFile | None, reading: FileReading) -> ManifestFile | None:
    """Returns the file after a reading. `before` is its previous state, possibly saved before a restart."""
    match reading.result:
        case FileContent() as good:
            return ManifestFile(good, None, reading.stamp, reading.written)
        case BrokenFile() as broken:
            # An empty file does not serve as a fallback, because the file's new content may be its first policy.
            if before and before.good and before.good.entries:
                return ManifestFile(before.good, broken, reading.stamp, before.written)
            return ManifestFile(None, broken, reading.stamp)
        case _:
            return None
