"""Selects the files that a command reads: a folder, single files, standard input, or a folder as it was at a commit."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from lasthop.edge.admission.limits import MAX_FILE
from lasthop.edge.sources.files.folder import reason

STDIN: Final = Path("-")
GIT_SECONDS: Final = 60.0
LOCAL: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
UNBORN: Final = "HEAD"
"""Resolves to no commit before the first one; everything is new then."""


class Selection(NamedTuple):
    path: Path
    """A folder."""
    where: str
    """The name of the selection in messages."""
    names: Mapping[str, str] = {}
    """The prefix of paths in the folder, and the prefix to display instead."""

    def shown(self, text: str) -> str:
        for path, name in self.names.items():
            text = text.replace(path, name)
        return text


@contextlib.contextmanager
def selected(folder: Path | None, files: Sequence[Path] = ()) -> Iterator[Selection]:
    """Returns a folder unchanged; assembles other files in a temporary folder."""
    chosen = list(dict.fromkeys([*([folder] if folder else []), *files]))
    for path in chosen:
        _require(path)
    if len(chosen) == 1 and chosen[0].is_dir():
        yield Selection(chosen[0], str(chosen[0]))
        return
    with tempfile.TemporaryDirectory(prefix="lasthop-") as name:
        names = {str(_put(path, Path(name), number)): _name(path) for number, path in enumerate(chosen)}
        yield Selection(Path(name), ", ".join(names.values()), names)


def _put(path: Path, root: Path, number: int) -> Path:
    """Puts a file into a folder: as a link, or as the content of standard input or a pipe."""
    place = root / f"{number:04}{'' if path.is_dir() else '.json' if path.suffix == '.json' else '.yaml'}"
    if path == STDIN:
        place.write_bytes(read_stdin(MAX_FILE + 1))
    elif path.is_fifo():  # as a shell passes <(kustomize build)
        with path.open("rb") as pipe:
            place.write_bytes(pipe.read(MAX_FILE + 1))
    else:
        place.symlink_to(path.resolve())
    return place


def _name(path: Path) -> str:
    return "<stdin>" if path == STDIN else str(path)


def _require(path: Path) -> None:
    try:
        if path != STDIN:
            path.stat()
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {reason(error)}") from None


@contextlib.contextmanager
def at(reference: str, folder: Path) -> Iterator[Selection]:
    """Selects the base of a comparison: a folder or file, or the same folder at a commit of git."""
    other = Path(reference)
    if reference and (other.exists() or other == STDIN):
        with selected(other) as chosen:
            yield chosen
        return
    root = folder if folder.is_dir() else folder.parent
    commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory(prefix="lasthop-") as name:
        if not commit:
            _require_unborn(reference, folder, root)
            yield Selection(Path(name), f"{reference}, which has no commit yet", {})
            return
        place = _unpacked(root, commit, Path(name))
        shown = f"{reference}:{folder}"
        path = place if folder.is_dir() else place / folder.name
        if path.is_file():
            with selected(path) as chosen:
                yield chosen._replace(where=shown, names=dict.fromkeys(chosen.names, shown))
        else:
            yield Selection(place, shown, {str(place): shown})


def _require_unborn(reference: str, folder: Path, root: Path) -> None:
    """Raises if a reference is not a commit, except for a repository's branch before its first commit."""
    if reference == UNBORN and _git(root, "rev-parse", "--git-dir"):
        return
    if folder == STDIN:
        raise click.ClickException(f"folder {reference} does not exist, and standard input has no commits to compare with")
    raise click.ClickException(f"{reference!r} is neither a folder nor a commit of the repository that {folder} is in")


def _unpacked(folder: Path, commit: str, place: Path) -> Path:
    """Writes a folder as of a commit, and returns its path. A folder that did not exist then is empty."""
    # git archives the folder in which it runs. The targets of links may be elsewhere in the repository.
    if not _unpack(_git(folder, "archive", "--format=tar", commit), place / "folder"):
        return place / "folder"
    inside = _git(folder, "rev-parse", "--show-prefix").decode().strip()
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    _unpack(_git(top, "archive", "--format=tar", commit), place / "repository")
    return place / "repository" / inside


def _unpack(archive: bytes, place: Path) -> bool:
    """Writes files, and links that stay below `place`; returns whether it omitted others. It does not use `extractall`, which
    is safe only since Python 3.11.4, and raises for such links."""
    place.mkdir(parents=True)
    if not archive:
        return False
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        members = opened.getmembers()
        for member in filter(tarfile.TarInfo.isreg, members):
            path = _below(place, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = opened.extractfile(member)
            path.write_bytes(content.read() if content else b"")
    # Links come last, so that no file is written through them.
    links = list(filter(tarfile.TarInfo.issym, members))
    return not all([_linked(place, member) for member in links])


def _linked(place: Path, member: tarfile.TarInfo) -> bool:
    """Creates a link unless it leads out of `place`."""
    path = _below(place, member.name)
    end = os.path.normpath(os.path.join(path.parent, member.linkname))
    if os.path.isabs(member.linkname) or not Path(end).is_relative_to(place):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(member.linkname)
    return True


def _below(place: Path, name: str) -> Path:
    path = Path(os.path.normpath(place / name))
    if not path.is_relative_to(place):
        raise click.ClickException(f"git archived {name!r}, which is not a path below a folder")
    return path


def _git(folder: Path, *args: str) -> bytes:
    """Returns the output; empty if git refuses."""
    try:
        command = ["git", "-C", str(folder), *args]
        # In git's hooks, these variables contain paths relative to the folder where git was called.
        env = {name: value for name, value in os.environ.items() if name not in LOCAL}
        ran = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=False, env=env)
    except FileNotFoundError:
        raise click.ClickException("git is not installed, so only folders can be compared") from None
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"git does not answer: {' '.join(args)}") from None
    return ran.stdout if ran.returncode == 0 else b""


def read_stdin(limit: int = -1) -> bytes:
    # Python has no object for a stream that was closed when it started.
    if sys.stdin is None:
        raise click.ClickException("standard input is closed")
    return sys.stdin.buffer.read(limit)
