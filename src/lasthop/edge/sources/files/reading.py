"""Holds what was read from the files. A reading changes nothing: the loader decides when it is applied."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from lasthop.edge.admission.limits import MAX_MESSAGE
from lasthop.edge.sources.files.content import EVERYWHERE, BrokenFile, FileContent, StoredDocument, digest
from lasthop.edge.sources.files.folder import Identity, Stamp, TooLarge, UnreadableFile, read, stamp_of
from lasthop.edge.sources.files.local_file import LocalFile
from lasthop.engine.plan.finding import Finding

MAKE_READABLE: Final = "Make it readable for the user that runs Lasthop, or rename or remove it."


class FileReading(NamedTuple):
    """Holds what was read from one file."""

    result: FileContent | BrokenFile | None
    """None: the file does not exist."""
    stamp: Stamp | None = None
    written: int = 0
    """When good content was, in nanoseconds: not necessarily the file itself, which may have been written again."""
    stored: tuple[StoredDocument, ...] | None = None
    """The admitted documents of a good file, if they are not on disk already."""


class Readings(NamedTuple):
    """Holds what was read from the folder: the files that may have changed."""

    files: dict[str, FileReading]
    local: dict[str, LocalFile]
    closed: dict[str, str] | None = None
    """Subfolders that cannot be listed, and why. None if not everything was read, as with the next three."""
    repeated: dict[str, str] | None = None
    linked: tuple[str, ...] | None = None
    folders: dict[str, Identity] | None = None
    large: frozenset[str] = frozenset()
    """Files that are still to be read: it takes so long that others should not wait for them."""
    later: frozenset[str] = frozenset()
    """Files to look at again next time: there are too many at once for others to wait for."""
    lost: str = ""
    """Why the folder as a whole cannot be read."""

    def same_as(self, other: Readings) -> bool:
        """Returns whether nothing was written between the two readings."""
        return {p: r.stamp for p, r in self.files.items()} == {p: r.stamp for p, r in other.files.items()} and {
            p: f.stamp for p, f in self.local.items()
        } == {p: f.stamp for p, f in other.local.items()}


def read_text(path: Path, shown: str) -> tuple[bytes, Stamp] | FileReading:
    """Reads a file, or returns why there is no text to examine."""
    try:
        return read(path)
    except FileNotFoundError:
        return FileReading(None)
    except TooLarge as error:
        return FileReading(too_large(shown, str(error)), stamp_of(path))
    except UnreadableFile as error:
        return FileReading(unreadable(shown, str(error)))


def unreadable(shown: str, why: str) -> BrokenFile:
    finding = Finding(None, "Unreadable", f"cannot be read: {why}.", MAKE_READABLE, file=shown, line=1)
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def crashed(shown: str, error: Exception) -> BrokenFile:
    message = f"cannot be read because of a bug in Lasthop: {type(error).__name__}: {str(error)[:MAX_MESSAGE]}."
    finding = Finding(None, "InternalError", message, "Please report it.", file=shown, line=1)
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def too_large(shown: str, why: str) -> BrokenFile:
    finding = Finding(None, "TooLarge", f"is not read: {why}.", "Split it into several files.", file=shown, line=1)
    return BrokenFile(b"", (finding,), opaque=EVERYWHERE)


def emptied(shown: str) -> BrokenFile:
    """Reports a file that had objects and is now blank: as likely a full disk or a crashed editor as intent."""
    remedy = "Delete the file to remove its objects."
    finding = Finding(None, "EmptyFile", "the file is empty.", remedy, file=shown, line=1)
    return BrokenFile(digest(b""), (finding,))


def is_blank(result: FileContent | BrokenFile | None) -> bool:
    return isinstance(result, FileContent) and not result.text.strip()
