"""Lists the files of the folder, and reads them safely.

Names that start with a dot are skipped: editors' swap files, .git, and the `..data` folders behind a mounted ConfigMap. Links
beside these folders lead to their files. Links to folders are followed. Each folder is read once, and at most `MAX_FOLDERS`
in total, because a link may lead to the whole machine.

Teams that share the folder take turns. Each subfolder at the top belongs to a team; the files beside these belong to another.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from lasthop.edge.admission.limits import MAX_FILE, MAX_FOLDER_DEPTH, MAX_FOLDERS

EXTENSIONS: Final = (".yaml", ".yml", ".json")
MISNAMED: Final = "its extension is not in lower case"
"""kubectl skips it too, on a case-sensitive file system."""
Identity = tuple[int, int]
"""Device and inode, which distinguish folders of the same name."""


class Stamp(NamedTuple):
    """Identifies a version of a file, whether it was written in place or replaced."""

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
    """Paths below the folder, in order; None for a file that exists but cannot be inspected."""
    closed: dict[str, str]
    """Subfolders that cannot be listed and files that cannot be named, with reasons; "." if not all folders were listed. Their
    files do not count as deleted."""
    repeated: dict[str, str]
    """Links that loop, or lead to folders that are already read under another name, with that name."""
    linked: tuple[str, ...]
    """Manifests and folders that are links. Their targets may be outside the folder and are watched there."""
    folders: dict[str, Identity]
    """The listed folders by path below the folder; the folder itself has the empty path."""


class FilesError(Exception):
    """The folder or the state directory cannot be used. The message is a sentence for the user."""


class UnreadableFile(Exception):
    """A file exists and cannot be read. The message is the reason."""


class TooLarge(UnreadableFile):
    pass


class OutsideRoots(UnreadableFile):
    """The file is outside the permitted folders."""


def is_manifest(name: str) -> bool:
    return name.endswith(EXTENSIONS) and not name.startswith(".")


def is_misnamed(name: str) -> bool:
    """Returns whether a file would be read if its extension were in lower case."""
    return not is_manifest(name) and is_manifest(name.casefold())


def scan(root: Path) -> Scan:
    """Lists the folder. Raises `FilesError` if it is missing or cannot be listed."""
    return _Scanner(root).run()


class _Scanner:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, Stamp | None] = {}
        self._closed: dict[str, str] = {}
        self._repeated: dict[str, str] = {}
        self._linked: list[str] = []
        self._folders: dict[str, Identity] = {}
        self._names: dict[Identity, str] = {}
        self._subfolders, self._links = TeamQueue(), TeamQueue()

    def run(self) -> Scan:
        self._list("")
        # Lists real folders first, so that a folder keeps its own name and a link to it is the duplicate.
        for _ in range(MAX_FOLDERS):
            if folder := self._subfolders.next():
                self._list(folder)
            elif folder := self._links.next():
                self._linked.append(folder)
                self._list(folder)
            else:
                break
        else:
            self._closed["."] = f"there are more than {MAX_FOLDERS} folders and links to folders"
        return Scan(dict(sorted(self._files.items())), self._closed, self._repeated, tuple(self._linked), self._folders)

    def _list(self, folder: str) -> None:
        if folder.count(os.sep) >= MAX_FOLDER_DEPTH:
            self._closed[folder] = f"it is more than {MAX_FOLDER_DEPTH} folders deep"
            return
        try:
            status = os.stat(self._root / folder)
            identity = status.st_dev, status.st_ino
            known_name = self._names.setdefault(identity, folder or ".")
            if known_name != (folder or "."):
                self._repeated[folder] = known_name
                return
            with os.scandir(self._root / folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not folder:
                raise FilesError(f"Cannot read the folder {self._root}: {reason(error)}.") from error
            self._closed[folder] = reason(error)
            return
        self._folders[folder] = identity
        for entry in entries:
            if not entry.name.startswith("."):
                self._take(f"{folder}/{entry.name}" if folder else entry.name, entry)

    def _take(self, path: str, entry: os.DirEntry[str]) -> None:
        try:
            self._take_entry(path, entry)
        except OSError as error:
            # A missing plain file was deleted meanwhile; a link may dangle.
            deleted = isinstance(error, FileNotFoundError) and not entry.is_symlink()
            if is_manifest(entry.name) and not deleted:
                self._files[path] = None

    def _take_entry(self, path: str, entry: os.DirEntry[str]) -> None:
        if not is_text(path):
            if is_manifest(entry.name) or entry.is_dir():
                self._closed[os.fsencode(path).decode("utf-8", "backslashreplace")] = "its name is not UTF-8"
        elif entry.is_dir():
            (self._links if entry.is_symlink() else self._subfolders).add(path, path.partition(os.sep)[0])
        elif is_manifest(entry.name):
            if entry.is_symlink():
                self._linked.append(path)
            self._files[path] = Stamp.of(entry.stat())
        elif is_misnamed(entry.name):
            self._closed[path] = MISNAMED


def is_read(path: str) -> bool:
    """Returns whether a file with this path below the folder is read at all."""
    return is_text(path) and path.count(os.sep) <= MAX_FOLDER_DEPTH


def is_text(name: str) -> bool:
    """Returns whether a name is valid text; Python decodes other bytes to half surrogate pairs."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def stamp_of(path: Path | str) -> Stamp | None:
    try:
        return Stamp.of(os.stat(path))
    except OSError:
        return None


class Roots:
    """Holds the permitted locations of local files: the folder itself, and paths that the operator allows."""

    def __init__(self, folder: Path, allowed: Iterable[Path] = ()) -> None:
        self._folders = (folder, *allowed)

    def hold(self, path: str) -> bool:
        """Returns whether `path`, with links resolved, is allowed. Links in the roots are followed each time."""
        return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in map(os.path.realpath, self._folders))


def read(path: Path, limit: int = MAX_FILE, roots: Roots | None = None) -> tuple[bytes, Stamp]:
    """Reads a file. Raises `FileNotFoundError` if it does not exist, `UnreadableFile` for other errors. Never blocks on a
    pipe.

    With `roots` the resolved path must be in one of them; otherwise not even the file's existence is revealed.
    """
    if roots is not None and not roots.hold(os.path.realpath(path)):
        raise OutsideRoots("it is outside")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            # Checked again on the open file, because a link may have changed since.
            if roots is not None and not roots.hold(os.readlink(f"/proc/self/fd/{descriptor}")):
                raise OutsideRoots("it is outside")
            text, status = _content(file, limit)
    except FileNotFoundError:
        if path.is_symlink():
            raise UnreadableFile("it is a dangling link") from None
        raise
    except OSError as error:
        raise UnreadableFile(reason(error)) from error
    if len(text) > limit:
        raise TooLarge(f"it is larger than {limit} bytes")
    return text, Stamp.of(status)


def _content(file: BinaryIO, limit: int) -> tuple[bytes, os.stat_result]:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile("it is not a regular file")
    text = file.read(limit + 1)
    if text is None:  # as for /proc/kmsg, which looks like a regular file and blocks
        raise UnreadableFile("it has nothing to read")
    return text, status


def reason(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "its links form a loop"
    if error.errno == errno.ENXIO:  # a socket
        return "it is not a regular file"
    return (error.strerror or str(error)).lower()


class TeamQueue:
    """Returns paths in order of arrival, one of each team in turn, so that a team with thousands does not delay others."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}

    def add(self, path: str, team: str) -> None:
        self._waiting.setdefault(team, deque()).append(path)

    def next(self) -> str:
        """Returns the next path, or an empty text."""
        if not self._waiting:
            return ""
        team = next(iter(self._waiting))
        paths = self._waiting.pop(team)
        path = paths.popleft()
        if paths:
            self._waiting[team] = paths
        return path


def team_of(file: str) -> str:
    top, separator, _ = file.partition(os.sep)
    return top if separator else ""


def in_turn(files: Iterable[str], last: str) -> Iterator[str]:
    """Yields the files, one of each team in turn, beginning after the team `last`."""
    turns = TeamQueue()
    for team, file in sorted(((team_of(file), file) for file in files), key=lambda pair: (pair[0] <= last, pair)):
        turns.add(file, team)
    return iter(turns.next, "")
