"""The local files that attachments name: read with care, put into their objects, and where to watch for their changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lasthop.admission.attachments import Attachment
from lasthop.admission.chain import Admitted
from lasthop.admission.limits import MAX_DATA
from lasthop.api.core import ConfigMap, Secret
from lasthop.api.meta import BytesMap, Object, StringMap
from lasthop.sources.files.folder import Outside, Roots, Stamp, Unreadable, read


class LocalFile(NamedTuple):
    content: bytes | None
    """What it says, or last said while it could be read; None if it never could."""
    error: str = ""
    stamp: Stamp | None = None
    outside: bool = False
    """It is not in a place that may be read: then nothing that it said before counts either."""


class Trouble(NamedTuple):
    attachment: Attachment
    message: str
    remedy: str = ""


def resolved(folder: Path, attachment: Attachment) -> str:
    """The file an attachment names. Links stay in the path: what they point to may change."""
    return os.path.normpath(folder / attachment.path)


def read_local(path: str, roots: Roots, last_good: bytes | None) -> LocalFile:
    try:
        content, stamp = read(Path(path), MAX_DATA, roots)
    except Outside:
        return LocalFile(None, "is not below the folder of Gateway API objects", outside=True)
    except FileNotFoundError:
        return LocalFile(last_good, "does not exist")
    except Unreadable as error:
        return LocalFile(last_good, f"cannot be read: {error}")
    # A certificate or key is never empty; a file that is just being written often is, or ends too early.
    if not content:
        return LocalFile(last_good, "is empty", stamp)
    if content.count(b"-----BEGIN ") > content.count(b"-----END "):
        return LocalFile(last_good, "ends in the middle of a PEM block", stamp)
    return LocalFile(content, "", stamp)


def with_files(
    entry: Admitted, folder: Path, local: Mapping[str, LocalFile], instead: Mapping[str, bytes]
) -> tuple[Admitted, list[Trouble]]:
    """The object with the content of its files, or, by key, what is to be used instead. A key with no content is left out."""
    found: dict[str, bytes] = {}
    troubles: list[Trouble] = []
    for attachment in entry.attachments:
        path = resolved(folder, attachment)
        file = local[path]
        content = instead.get(attachment.key, file.content)
        if file.error:
            kept = "Its last content stays in use." if content is not None else "The key is left out."
            remedy = "Put the file there, or correct the path."
            if file.outside:
                remedy = f"Put it there, or allow it with: --allow-files {os.path.dirname(path)}"
            troubles.append(Trouble(attachment, f"{path} {file.error}. {kept}", remedy))
        if content is not None:
            found[attachment.key] = content
    obj, more = _filled(entry, found)
    digest = hashlib.blake2b(entry.digest, digest_size=16)
    for name, content in found.items():
        digest.update(name.encode() + b"\0" + hashlib.blake2b(content).digest())
    return replace(entry, object=obj, digest=digest.digest()), troubles + more


def _filled(entry: Admitted, found: dict[str, bytes]) -> tuple[Object, list[Trouble]]:
    obj, attachments = entry.object, {attachment.key: attachment for attachment in entry.attachments}
    troubles: list[Trouble] = []
    if isinstance(obj, Secret):
        data = {**dict(obj.data), **found}
        if _size(data) > MAX_DATA:
            return obj, [_too_large(a) for a in attachments.values()]
        return replace(obj, data=BytesMap(sorted(data.items()))), []
    assert isinstance(obj, ConfigMap)
    texts = dict(obj.data)
    for name, content in found.items():
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            message = "a ConfigMap holds text, and this file is not UTF-8. The key is left out"
            troubles.append(Trouble(attachments[name], message, "Convert it to PEM, or use a Secret."))
    if _size({name: text.encode() for name, text in texts.items()}) > MAX_DATA:
        return obj, [_too_large(a) for a in attachments.values()]
    return replace(obj, data=StringMap.of(texts)), troubles


def _too_large(attachment: Attachment) -> Trouble:
    message = f"with its files the object is larger than {MAX_DATA} bytes. They are left out"
    return Trouble(attachment, message, "Split it into several objects.")


def _size(data: Mapping[str, bytes]) -> int:
    return sum(len(value) for value in data.values())


def folders_to_watch(path: str) -> set[str]:
    """Where an event may mean that `path` says something else: its own folder, and those of every link on the way."""
    found: set[str] = set()
    for _ in range(40):  # as many links as Linux follows
        parent = os.path.dirname(path)
        found.update((parent, os.path.realpath(parent)))
        # The parent itself may be a link (..data in a mounted ConfigMap), swapped in the folder that holds it.
        if os.path.islink(parent):
            found.add(os.path.dirname(parent))
        if not os.path.islink(path):
            break
        path = os.path.normpath(os.path.join(parent, os.readlink(path)))
    return {folder for folder in found if os.path.isdir(folder)}
