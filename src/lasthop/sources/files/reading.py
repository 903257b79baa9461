"""What a look at the files gave. A reading changes nothing: the loader decides when it is applied."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lasthop.plan.finding import Finding
from lasthop.sources.files.content import Broken, Content, Stored, digest
from lasthop.sources.files.folder import Stamp, TooLarge, Unreadable, read, stamp_of
from lasthop.sources.files.local_file import LocalFile


class Reading(NamedTuple):
    """What a look at one file gave."""

    result: Content | Broken | None
    """None: the file is gone."""
    stamp: Stamp | None = None
    written: int = 0
    """When good content was, in nanoseconds: not necessarily the file itself, which may have been written again."""
    stored: tuple[Stored, ...] | None = None
    """The admitted documents of a good file, if they are not on disk already."""


class Readings(NamedTuple):
    """What a look at the folder gave: the files that may have changed."""

    files: dict[str, Reading]
    local: dict[str, LocalFile]
    closed: dict[str, str] | None = None
    """Sub-folders that cannot be listed, and why. None if this was not a look at everything, as with the next two."""
    repeated: dict[str, str] | None = None
    linked: tuple[str, ...] | None = None
    large: frozenset[str] = frozenset()
    """Files that are still to be read: it takes so long that others should not wait for it."""
    lost: str = ""
    """Why the folder as a whole cannot be read."""

    def same_as(self, other: Readings) -> bool:
        """Whether nothing was written between the two looks."""
        return {p: r.stamp for p, r in self.files.items()} == {p: r.stamp for p, r in other.files.items()} and {
            p: f.stamp for p, f in self.local.items()
        } == {p: f.stamp for p, f in other.local.items()}


def read_text(path: Path, shown: str) -> tuple[bytes, Stamp] | Reading:
    """Reads a file, or says why there is no text to examine."""
    try:
        return read(path)
    except FileNotFoundError:
        return Reading(None)
    except TooLarge as error:
        return Reading(too_large(shown, str(error)), stamp_of(path))
    except Unreadable as error:
        return Reading(unreadable(shown, str(error)))


def unreadable(shown: str, why: str) -> Broken:
    remedy = "Make it readable for the user that runs Lasthop, or remove it."
    return Broken(b"", (Finding(None, "Unreadable", f"cannot be read: {why}.", remedy, file=shown, line=1),), opaque=True)


def too_large(shown: str, why: str) -> Broken:
    finding = Finding(None, "TooLarge", f"is not read: {why}.", "Split it into several files.", file=shown, line=1)
    return Broken(b"", (finding,), opaque=True)


def emptied(shown: str) -> Broken:
    """A file that had objects and is now blank: as likely a full disk or a crashed editor as intent."""
    remedy = "Delete the file to remove its objects."
    finding = Finding(None, "EmptyFile", "the file is empty.", remedy, file=shown, line=1)
    return Broken(digest(b""), (finding,))


def is_blank(result: Content | Broken | None) -> bool:
    return isinstance(result, Content) and not result.text.strip()
