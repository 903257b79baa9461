"""Reads the annotations that fill a ConfigMap or Secret from local files in files mode, so that YAML contains no keys.

The annotation `lasthop.dev/file.KEY: PATH` puts the content of PATH into `data[KEY]`; a relative PATH starts at the folder of
the YAML file. `local_files.py` reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lasthop.base.api.core import READ_KEYS
from lasthop.base.api.documents import Json
from lasthop.edge.admission.problem import FieldProblem, Problems, shown
from lasthop.engine.plan import reasons

PREFIX: Final = "lasthop.dev/file."


class Attachment(msgspec.Struct, frozen=True):
    key: str
    """The key in `data`."""
    path: str
    """As written."""

    @property
    def annotation(self) -> str:
        return PREFIX + self.key


def attachments(annotations: Iterable[tuple[str, str]]) -> tuple[Attachment, ...]:
    return tuple(Attachment(name.removeprefix(PREFIX), path) for name, path in sorted(annotations) if name.startswith(PREFIX))


def check(document: Json, problems: Problems) -> set[str]:
    """Checks the annotations, and returns the keys that files supply."""
    attached = attachments(document["metadata"]["annotations"].items())
    for attachment in attached:
        path = ("metadata", "annotations", attachment.annotation)
        keys = READ_KEYS[document["kind"]]  # no other files, and no private key in a ConfigMap
        if attachment.key not in keys:
            message = f"{shown(attachment.key)} of a {document['kind']} cannot come from a file"
            problems.append(FieldProblem(message, path, f"Only {', '.join(keys)} can come from a file."))
        if not attachment.path.strip() or "\0" in attachment.path:
            problems.append(FieldProblem("names no file", path, "Write the path of a file, relative to this one or absolute."))
        if attachment.key in document.get("data", {}) or attachment.key in document.get("binaryData", {}):
            message = f"{shown(attachment.key)} is also written in the object itself"
            problems.append(FieldProblem(message, path, "Keep one of the two.", reasons.DUPLICATE))
    return {attachment.key for attachment in attached}
