"""Local files as the content of a ConfigMap or Secret, in files mode only, so that nobody pastes keys into YAML.

The annotation `lasthop.dev/file.KEY: PATH` puts the content of PATH into `data[KEY]`; a relative PATH starts at the folder of
the YAML file. This module knows what the annotations say; `local_files.py` reads the files.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.admission.problem import Problem, Problems, shown
from lasthop.api.documents import Json

PREFIX: Final = "lasthop.dev/file."
KEYS: Final = {"ConfigMap": ("ca.crt", "ca.crl"), "Secret": ("ca.crt", "ca.crl", "tls.crt", "tls.key")}
"""What a gateway reads of each kind. Other files have no business in it, and a private key none in a ConfigMap."""


class Attachment(msgspec.Struct, frozen=True):
    key: str
    """Of `data`."""
    path: str
    """As written."""

    @property
    def annotation(self) -> str:
        return PREFIX + self.key


def attachments(metadata: Json) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(name.removeprefix(PREFIX), path)
        for name, path in sorted(metadata["annotations"].items())
        if name.startswith(PREFIX)
    )


def check(document: Json, problems: Problems) -> set[str]:
    """The keys that files will supply."""
    found = attachments(document["metadata"])
    for each in found:
        path = ("metadata", "annotations", each.annotation)
        keys = KEYS[document["kind"]]
        if each.key not in keys:
            message = f"a file cannot be the content of {shown(each.key)} in a {document['kind']}"
            problems.append(Problem(message, path, f"Only {', '.join(keys)} can come from a file."))
        if not each.path.strip() or "\0" in each.path:
            problems.append(Problem("names no file", path, "Write the path of a file, relative to this one or absolute."))
        if each.key in document.get("data", {}) or each.key in document.get("binaryData", {}):
            message = f"{shown(each.key)} is also written in the object itself"
            problems.append(Problem(message, path, "Keep one of the two.", "Duplicate"))
    return {each.key for each in found}
