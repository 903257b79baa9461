"""What is in the folder: which files count, and a careful way to read one.

Names that start with a dot are skipped: editors' swap files, .git, and the `..data` folders behind a mounted ConfigMap, whose
files are reached through the links beside them. Links to folders are followed, each folder is read once.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from lasthop.admission.limits import MAX_FILE

EXTENSIONS: Final = (".yaml", ".yml", ".json")


class Stamp(NamedTuple):
    """Changes whenever the file does, however it is written or replaced."""

    mtime: int
    ctime: int
    size: int
    device: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_dev, status.st_ino)


class Scan(NamedTuple):
    files: dict[str, Stamp | None]
    """By path below the folder, in order; None for one that is there but cannot even be looked at."""
    closed: dict[str, str]
    """Sub-folders that cannot be listed, and why. What they held is not known to be gone."""
    repeated: dict[str, str]
    """Links to folders that are read under another name (or loop), and that name."""
    linked: tuple[str, ...]
    """Files and folders that are links: what they point to may lie outside the folder and has to be watched there."""


class FilesError(Exception):
    """The folder or the state directory cannot be used at all. The message is a sentence for the user."""


class Unreadable(Exception):
    """A file that is there and cannot be read. The message says why."""


class TooLarge(Unreadable):
    pass


class Outside(Unreadable):
    """It is not in a place that may be read."""


def counts(name: str) -> bool:
    return name.endswith(EXTENSIONS) and not name.startswith(".")


def scan(root: Path) -> Scan:
    """Raises `FilesError` if the folder itself is missing or cannot be listed."""
    files: dict[str, Stamp | None] = {}
    closed: dict[str, str] = {}
    repeated: dict[str, str] = {}
    linked: list[str] = []
    seen: dict[tuple[int, int], str] = {}
    links: list[str] = []

    def folder(below: str) -> None:
        try:
            status = os.stat(root / below)
            where = seen.setdefault((status.st_dev, status.st_ino), below or ".")
            if where != (below or "."):
                repeated[below] = where
                return
            with os.scandir(root / below) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not below:
                raise FilesError(f"Cannot read the folder {root}: {reason(error)}.") from error
            closed[below] = reason(error)
            return
        for entry in entries:
            if not entry.name.startswith("."):
                each(f"{below}/{entry.name}" if below else entry.name, entry)

    def each(path: str, entry: os.DirEntry[str]) -> None:
        try:
            if entry.is_symlink():
                linked.append(path)
                if entry.is_dir():
                    links.append(path)
                    return
            elif entry.is_dir():
                folder(path)
                return
            if counts(entry.name):
                files[path] = Stamp.of(entry.stat())
        except FileNotFoundError:
            if counts(entry.name) and entry.is_symlink():
                files[path] = None  # a dangling link; a plain file that is gone by now is just gone
        except OSError:
            if counts(entry.name):
                files[path] = None

    folder("")
    # Real folders first, so that a folder is known by its own name and a link to it is the repetition.
    while links:
        folder(links.pop(0))
    return Scan(dict(sorted(files.items())), closed, repeated, tuple(linked))


def stamp_of(path: Path | str) -> Stamp | None:
    try:
        return Stamp.of(os.stat(path))
    except OSError:
        return None


class Roots:
    """Where local files may be: the folder itself, and what the operator has allowed besides."""

    def __init__(self, folder: Path, allowed: Iterable[Path] = ()) -> None:
        self._folders = (folder, *allowed)

    def hold(self, path: str) -> bool:
        """`path` has no links in it any more. Those in the roots are followed each time: they may be swapped."""
        return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in map(os.path.realpath, self._folders))


def read(path: Path, limit: int = MAX_FILE, roots: Roots | None = None) -> tuple[bytes, Stamp]:
    """Raises `FileNotFoundError` if it is gone, `Unreadable` for every other trouble. Never waits on a pipe.

    With `roots` it must lie in one of them, wherever links lead; otherwise nobody learns whether it is there at all.
    """
    if roots is not None and not roots.hold(os.path.realpath(path)):
        raise Outside("it lies outside")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            # Asked again of the open file: a link may have been swapped since.
            if roots is not None and not roots.hold(os.readlink(f"/proc/self/fd/{descriptor}")):
                raise Outside("it lies outside")
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("it is not a regular file")
            text = file.read(limit + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise Unreadable("it is a link to nothing") from None
        raise
    except OSError as error:
        raise Unreadable(reason(error)) from error
    if len(text) > limit:
        raise TooLarge(f"it is larger than {limit} bytes")
    return text, Stamp.of(status)


def reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its links form a loop"
    return (error.strerror or str(error)).lower()
