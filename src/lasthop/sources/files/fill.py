"""Objects with the content of the local files that their attachments name."""

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
from lasthop.admission.problem import field
from lasthop.api.core import ConfigMap, Secret
from lasthop.api.meta import BytesMap, Object, StringMap
from lasthop.plan.finding import Severity
from lasthop.sources.files.local_file import LocalFile, resolved


class Trouble(NamedTuple):
    """What is wrong with an attachment, before it is known which line it is on."""

    field: str
    message: str
    remedy: str = ""
    reason: str = "LocalFile"
    severity: Severity = Severity.ERROR


def fill(
    entry: Admitted, folder: Path, local: Mapping[str, LocalFile], instead: Mapping[str, bytes]
) -> tuple[Admitted, list[Trouble]]:
    """Puts the content of its files, or by key what to use instead, into an object. A key with no content is left out."""
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
            troubles.append(_trouble(attachment, f"{path} {file.error}. {kept}", remedy))
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
            troubles.append(_trouble(attachments[name], message, "Convert it to PEM, or use a Secret."))
    if _size({name: text.encode() for name, text in texts.items()}) > MAX_DATA:
        return obj, [_too_large(a) for a in attachments.values()]
    return replace(obj, data=StringMap.of(texts)), troubles


def _too_large(attachment: Attachment) -> Trouble:
    message = f"with its files the object is larger than {MAX_DATA} bytes. They are left out"
    return _trouble(attachment, message, "Split it into several objects.")


def _size(data: Mapping[str, bytes]) -> int:
    return sum(len(value) for value in data.values())


def _trouble(attachment: Attachment, message: str, remedy: str) -> Trouble:
    return Trouble(annotation_field(attachment), message, remedy)


def annotation_field(attachment: Attachment) -> str:
    return field(("metadata", "annotations", attachment.annotation))
