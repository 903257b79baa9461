"""Lists the files of the folder, and reads them safely.

Names that start with a dot are skipped: editors' swap files, .git, and the `..data` folders behind a mounted ConfigMap, whose
files are reached through the links beside them. Links to folders are followed; each folder is read once.
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
    """Identifies a version of a file, however it is written or replaced."""

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
    """By path below the folder, in order; None for one that exists but cannot be inspected."""
    closed: dict[str, str]
    """Subfolders that cannot be listed, and why. Their files are not known to be deleted."""
    repeated: dict[str, str]
    """Links to folders that are read under another name (or loop), and that name."""
    linked: tuple[str, ...]
    """Files and folders that are links: their targets may be outside the folder and are watched there."""


class FilesError(Exception):
    """The folder or the state directory cannot be used at all. The message is a sentence for the user."""


class Unreadable(Exception):
    """A file exists and cannot be read. The message says why."""


class TooLarge(Unreadable):
    pass


class OutsideRoots(Unreadable):
    """It is outside the folders that may be read."""


def is_manifest(name: str) -> bool:
    return name.endswith(EXTENSIONS) and not name.startswith(".")


def scan(root: Path) -> Scan:
    """Lists the folder. Raises `FilesError` if it is missing or cannot be listed."""
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
            if is_manifest(entry.name):
                files[path] = Stamp.of(entry.stat())
        except FileNotFoundError:
            if is_manifest(entry.name) and entry.is_symlink():
                files[path] = None  # a dangling link; a plain file was deleted meanwhile
        except OSError:
            if is_manifest(entry.name):
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
    """Lists where local files may be: the folder itself, and what the operator allows besides."""

    def __init__(self, folder: Path, allowed: Iterable[Path] = ()) -> None:
        self._folders = (folder, *allowed)

    def hold(self, path: str) -> bool:
        """Returns whether `path`, with links resolved, is allowed. Links in the roots are followed each time."""
        return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in map(os.path.realpath, self._folders))


def read(path: Path, limit: int = MAX_FILE, roots: Roots | None = None) -> tuple[bytes, Stamp]:
    """Reads a file. Raises `FileNotFoundError` if it does not exist, `Unreadable` for other errors. Never waits on a pipe.

    With `roots` it must be in one of them after links are resolved; otherwise even its existence is not revealed.
    """
    if roots is not None and not roots.hold(os.path.realpath(path)):
        raise OutsideRoots("it is outside")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            # Checked again on the open file: a link may have changed since.
            if roots is not None and not roots.hold(os.readlink(f"/proc/self/fd/{descriptor}")):
                raise OutsideRoots("it is outside")
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable("it is not a regular file")
            text = file.read(limit + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise Unreadable("it is a dangling link") from None
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
