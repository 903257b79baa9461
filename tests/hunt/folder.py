"""Plays edits on a real folder, in every way that files come to a machine."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.hunt.base import expanded
from tests.hunt.history import Edit, Step

MOUNTED = "mounted"
"""The sub-folder that is laid out as a mounted ConfigMap: files are links into `..data`, a link to a dated folder."""


class Folder:
    """`root/objects`, which is a folder or a link to `root/releases/N`."""

    def __init__(self, root: Path, linked: bool, tokens: Mapping[str, str]) -> None:
        self._root, self._linked, self._tokens = root, linked, tokens
        self._numbers = itertools.count(1)
        self.path = root / "objects"
        if linked:
            first = root / "releases" / "0"
            first.mkdir(parents=True)
            self.path.symlink_to(first)
        else:
            self.path.mkdir()

    def play(self, step: Step) -> None:
        if step.folder == "away":
            self.path.rename(self._root / "away")
        elif step.folder == "back":
            (self._root / "away").rename(self.path)
        match step.via:
            case "release" if step.edits:
                self._release(step.edits)
            case "data" if step.edits:
                self._mount(step.edits)
            case _:
                for edit in step.edits:
                    self._edit(self.path, edit, by_renaming=step.via == "replace")

    def mark(self, name: str) -> None:
        """Writes a route without a backend, which is served once everything before it is in force."""
        text = (
            f"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: {name}, namespace: shop}}\n"
            f"spec: {{parentRefs: [{{name: web}}], hostnames: [{name}.test], rules: [{{}}]}}\n"
        )
        self._edit(self.path, Edit("marker.yaml", text), by_renaming=True)

    def _release(self, edits: Iterable[Edit]) -> None:
        number = str(next(self._numbers))
        new = self._root / "releases" / number
        new.parent.mkdir(exist_ok=True)
        shutil.copytree(self.path, new, symlinks=True, ignore=_unlike_files)
        for path in self.path.rglob("*"):
            if path.is_fifo() or path.is_socket():
                _put(new / path.relative_to(self.path), "fifo" if path.is_fifo() else "socket")
        for edit in edits:
            self._edit(new, edit)
        if self._linked:
            link = self._root / f"link-{number}"
            link.symlink_to(new)
            link.replace(self.path)
        else:
            self.path.rename(self._root / f"old-{number}")
            new.rename(self.path)

    def _mount(self, edits: Iterable[Edit]) -> None:
        mounted = self.path / MOUNTED
        mounted.mkdir(exist_ok=True)
        data, dated = mounted / "..data", mounted / f"..{next(self._numbers)}"
        if data.exists():
            shutil.copytree(data, dated)
        else:
            dated.mkdir()
        for edit in edits:
            folder, _, name = edit.path.rpartition("/")
            assert folder == MOUNTED, edit.path
            self._edit(dated, Edit(name, edit.text, edit.encoding, edit.pad))
        link = mounted / "..data_tmp"
        link.symlink_to(dated.name)
        link.replace(data)
        for path in dated.iterdir():
            if not (mounted / path.name).is_symlink():
                (mounted / path.name).symlink_to(f"..data/{path.name}")
        for path in mounted.iterdir():
            if path.is_symlink() and path.name != "..data" and not path.exists():
                path.unlink()

    def content(self, edit: Edit) -> bytes:
        text = expanded(edit.content, self._tokens)
        line = b"# " + b"x" * 97 + b"\n"
        return text.encode(edit.encoding) + line * (edit.pad // len(line))

    def _edit(self, folder: Path, edit: Edit, *, by_renaming: bool = False) -> None:
        path = folder / edit.path
        path.parent.mkdir(exist_ok=True)
        if edit.to:
            path.rename(folder / edit.to)
        elif edit.text is not None:
            if path.is_fifo() or path.is_socket() or path.is_symlink():
                path.unlink()
            elif path.is_dir():
                path.rmdir()
            written = path.with_name(f".{path.name}.new") if by_renaming else path
            written.write_bytes(self.content(edit))
            written.chmod(0o644)
            if by_renaming:
                written.replace(path)
        elif edit.odd == "unreadable":
            path.chmod(0)
        elif edit.odd:
            _put(path, edit.odd)
        elif path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)


def _put(path: Path, odd: str) -> None:
    """Replaces a file by something else, at once where the system can."""
    new = path.with_name(f".{path.name}.odd")
    match odd:
        case "fifo":
            os.mkfifo(new)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(new))
        case "dangling":
            new.symlink_to("nowhere.yaml")
        case "loop":
            new.symlink_to(path.name)
        case _:
            path.unlink(missing_ok=True)
            path.mkdir()
            return
    new.replace(path)


def _unlike_files(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_fifo() or Path(folder, name).is_socket()]
