"""Reads a local file that an annotation names, and determines the folders to watch for its changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from lasthop.edge.admission.attachments import Attachment
from lasthop.edge.admission.limits import MAX_DATA
from lasthop.edge.sources.files.folder import OutsideRoots, Roots, Stamp, UnreadableFile, read

MAX_LINKS: Final = 40
"""Linux' limit for links in a path."""
WRITE_ALL: Final = "Write all of it."


class LocalFile(NamedTuple):
    content: bytes | None
    """Its content, or its last readable content; None if it was never readable."""
    error: str = ""
    remedy: str = "Put the file there, or correct the path."
    stamp: Stamp | None = None
    outside: bool = False
    """The file is outside the permitted folders, so its earlier content does not count either."""
    leads_to: str = ""
    """The outside target of a link, for a path that begins in a permitted folder."""


def resolved(folder: Path, attachment: Attachment) -> str:
    """Returns the path of an attachment, with links unresolved, because their targets may change."""
    return os.path.normpath(folder / attachment.path)


def read_local(path: str, roots: Roots, last_good: bytes | None) -> LocalFile:
    try:
        content, stamp = read(Path(path), MAX_DATA, roots)
    except OutsideRoots:
        return _outside(path, roots)
    except FileNotFoundError:
        return LocalFile(last_good, "does not exist")
    except UnreadableFile as error:
        return LocalFile(last_good, f"cannot be read: {error}", "Make it readable for the user that runs Lasthop.")
    # A certificate or key is never empty. A file that is being written is often empty, or ends too early.
    if not content:
        return LocalFile(last_good, "is empty", WRITE_ALL, stamp)
    if content.count(b"-----BEGIN ") > content.count(b"-----END "):
        return LocalFile(last_good, "ends in the middle of a PEM block", WRITE_ALL, stamp)
    return LocalFile(content, stamp=stamp)


def _outside(path: str, roots: Roots) -> LocalFile:
    error, leads_to = "is not below the folder of Gateway API objects", _way_out(path, roots)
    return LocalFile(None, f"leads to {leads_to}, which {error}" if leads_to else error, outside=True, leads_to=leads_to)


def _way_out(path: str, roots: Roots) -> str:
    """Returns the first path outside the roots to which links inside lead; empty if `path` itself is outside. Links outside
    are not followed, so that not even their existence is revealed."""
    target = ""
    for _ in range(MAX_LINKS):
        inside = next((parent for parent in reversed(Path(path).parents) if roots.hold(os.path.realpath(parent))), None)
        if inside is None:
            return target
        position, remaining = os.path.realpath(inside), list(Path(path).relative_to(inside).parts)
        while remaining:
            position = os.path.join(position, remaining.pop(0))
            if os.path.islink(position):
                position = os.path.normpath(os.path.join(os.path.dirname(position), os.readlink(position)))
                break
        target = path = os.path.join(position, *remaining)
    return target


def folders_to_watch(path: str) -> set[str]:
    """Returns the folders in which an event may change `path`: its own folder, and the folders of all links on the way."""
    folders: set[str] = set()
    for _ in range(MAX_LINKS):
        parent = os.path.dirname(path)
        folders.update((parent, os.path.realpath(parent)))
        # The parent itself may be a link (..data in a mounted ConfigMap), swapped in its own parent.
        if os.path.islink(parent):
            folders.add(os.path.dirname(parent))
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(parent, os.readlink(path)))
    return {folder for folder in folders if os.path.isdir(folder)}
