"""Tracks the files of the folder: each one's content, or what is wrong with it beside its last good content.

Values only: the loader reads the files, and restores what was saved before a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from lasthop.edge.sources.files.content import BrokenFile, FileContent
from lasthop.edge.sources.files.folder import Stamp
from lasthop.edge.sources.files.reading import FileReading


class ManifestFile(msgspec.Struct, frozen=True):
    good: FileContent | None
    """Its content, or its last good content while it is broken."""
    broken: BrokenFile | None = None
    stamp: Stamp | None = None
    written: int = 0
    """When the good content was, in nanoseconds."""

    def of_text(self, digest: bytes) -> FileContent | BrokenFile | None:
        """Returns what is known of this text, if the file has it, or had it when it was good."""
        return next((known for known in (self.good, self.broken) if known and known.digest == digest), None)


class FileSet:
    def __init__(self) -> None:
        self._files: dict[str, ManifestFile] = {}
        self._broken: dict[str, BrokenFile] = {}
        """The broken ones among them, so that the cost of a change does not grow with the number of good files."""

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
        """What is not ours in the files, and how often."""
        return Counter(other for file in self._files.values() if file.good for other in file.good.others)

    @property
    def broken(self) -> list[tuple[str, BrokenFile]]:
        return sorted(self._broken.items())

    def is_as_at(self, path: str, stamp: Stamp | None) -> bool:
        file = self._files.get(path)
        return file is not None and stamp is not None and file.stamp == stamp

    def may_be_half_written(self, path: str, result: FileContent | BrokenFile | None) -> bool:
        """Returns whether the result would remove objects or keep old ones: then the file is read again first."""
        file = self._files.get(path)
        if file is None:
            return isinstance(result, BrokenFile)
        if not isinstance(result, FileContent):
            return file.broken is None or result != file.broken
        return file.good is not None and not file.good.keys <= result.keys

    def loses(self, path: str, result: FileContent | BrokenFile | None) -> bool:
        """Returns whether the result removes objects."""
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
            # An empty file is not a content to fall back on: what the file contains now may be its first policy.
            if before and before.good and before.good.entries:
                return ManifestFile(before.good, broken, reading.stamp, before.written)
            return ManifestFile(None, broken, reading.stamp)
        case _:
            return None
