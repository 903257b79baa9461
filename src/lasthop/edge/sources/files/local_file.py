"""Reads a local file that an annotation names, and says where to watch for its changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from lasthop.edge.admission.attachments import Attachment
from lasthop.edge.admission.limits import MAX_DATA
from lasthop.edge.sources.files.folder import OutsideRoots, Roots, Stamp, UnreadableFile, read

MAX_LINKS: Final = 40
"""That Linux follows."""
WRITE_ALL: Final = "Write all of it."


class LocalFile(NamedTuple):
    content: bytes | None
    """Its content, or its last content while it could be read; None if it never could."""
    error: str = ""
    remedy: str = "Put the file there, or correct the path."
    stamp: Stamp | None = None
    outside: bool = False
    """It is outside the folders that may be read: then its earlier content does not count either."""
    leads_to: str = ""
    """Of a path below these folders that is outside all the same: where a link of theirs leads it."""


def resolved(folder: Path, attachment: Attachment) -> str:
    """Returns the path of an attachment. Links stay in it, because their targets may change."""
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
    # A certificate or key is never empty; a file that is just being written often is, or ends too early.
    if not content:
        return LocalFile(last_good, "is empty", WRITE_ALL, stamp)
    if content.count(b"-----BEGIN ") > content.count(b"-----END "):
        return LocalFile(last_good, "ends in the middle of a PEM block", WRITE_ALL, stamp)
    return LocalFile(content, stamp=stamp)


def _outside(path: str, roots: Roots) -> LocalFile:
    error, leads_to = "is not below the folder of Gateway API objects", _way_out(path, roots)
    return LocalFile(None, f"leads to {leads_to}, which {error}" if leads_to else error, outside=True, leads_to=leads_to)


def _way_out(path: str, roots: Roots) -> str:
    """Returns the first path outside that links inside lead to; empty if `path` is outside by itself. No link outside is
    followed: even whether there is one is not revealed."""
    out = ""
    for _ in range(MAX_LINKS):
        begin = next((each for each in reversed(Path(path).parents) if roots.hold(os.path.realpath(each))), None)
        if begin is None:
            return out
        here, rest = os.path.realpath(begin), list(Path(path).relative_to(begin).parts)
        while rest:
            here = os.path.join(here, rest.pop(0))
            if os.path.islink(here):
                here = os.path.normpath(os.path.join(os.path.dirname(here), os.readlink(here)))
                break
        out = path = os.path.join(here, *rest)
    return out


def folders_to_watch(path: str) -> set[str]:
    """Returns the folders where an event may change `path`: its own, and those of every link on the way."""
    folders: set[str] = set()
    for _ in range(MAX_LINKS):
        parent = os.path.dirname(path)
        folders.update((parent, os.path.realpath(parent)))
        # The parent itself may be a link (..data in a mounted ConfigMap), swapped in the folder that holds it.
        if os.path.islink(parent):
            folders.add(os.path.dirname(parent))
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(parent, os.readlink(path)))
    return {folder for folder in folders if os.path.isdir(folder)}
