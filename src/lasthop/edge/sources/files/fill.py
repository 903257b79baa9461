"""Fills objects with the content of the local files that their annotations name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from lasthop.base.api.core import ConfigMap, Secret
from lasthop.base.api.meta import BytesMap, Object, StringMap
from lasthop.edge.admission.attachments import Attachment
from lasthop.edge.admission.chain import AdmittedObject
from lasthop.edge.admission.limits import MAX_DATA
from lasthop.edge.admission.problem import field
from lasthop.edge.sources.files.local_file import LocalFile, resolved
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding


def fill(
    entry: AdmittedObject, folder: Path, local: Mapping[str, LocalFile], instead: Mapping[str, bytes]
) -> tuple[AdmittedObject, list[Finding]]:
    """Puts the content of its files, or `instead` of them by key, into an object. A key without content is left out.

    Problems are returned as findings without file and line."""
    contents: dict[str, bytes] = {}
    findings: list[Finding] = []
    for attachment in entry.attachments:
        path = resolved(folder, attachment)
        file = local[path]
        content = instead.get(attachment.key, file.content)
        if file.error:
            kept = "Its last content stays in use." if content is not None else "The key is left out."
            remedy = "Put the file there, or correct the path."
            if file.outside:
                remedy = f"Put it there, or allow it with: --allow-files {os.path.dirname(file.leads_to or path)}"
            findings.append(_finding(entry, attachment, f"{path} {file.error}. {kept}", remedy))
        if content is not None:
            contents[attachment.key] = content
    obj, more = _filled(entry, contents)
    digest = hashlib.blake2b(entry.digest, digest_size=16)
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + hashlib.blake2b(content).digest())
    return replace(entry, object=obj, digest=digest.digest()), findings + more


def _filled(entry: AdmittedObject, contents: dict[str, bytes]) -> tuple[Object, list[Finding]]:
    obj, attachments = entry.object, {attachment.key: attachment for attachment in entry.attachments}
    findings: list[Finding] = []
    if isinstance(obj, Secret):
        data = {**dict(obj.data), **contents}
        if _size(data) > MAX_DATA:
            return obj, [_too_large(entry, a) for a in attachments.values()]
        return replace(obj, data=BytesMap(sorted(data.items()))), []
    assert isinstance(obj, ConfigMap)
    texts = dict(obj.data)
    for name, content in contents.items():
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            message = "a ConfigMap holds text, and this file is not UTF-8. The key is left out"
            findings.append(_finding(entry, attachments[name], message, "Convert it to PEM, or use a Secret."))
    if _size({name: text.encode() for name, text in texts.items()}) > MAX_DATA:
        return obj, [_too_large(entry, a) for a in attachments.values()]
    return replace(obj, data=StringMap.of(texts)), findings


def _too_large(entry: AdmittedObject, attachment: Attachment) -> Finding:
    message = f"with its files the object is larger than {MAX_DATA} bytes. They are left out"
    return _finding(entry, attachment, message, "Split it into several objects.")


def _size(data: Mapping[str, bytes]) -> int:
    return sum(len(value) for value in data.values())


def _finding(entry: AdmittedObject, attachment: Attachment, message: str, remedy: str) -> Finding:
    return make_finding(entry.key, reasons.LOCAL_FILE, message, remedy, annotation_field(attachment))


def annotation_field(attachment: Attachment) -> str:
    return field(("metadata", "annotations", attachment.annotation))
