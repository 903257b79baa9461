"""The objects in files that are not applied, so that what misses them is not called a mistake of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.yaml import parse
from lasthop.edge.sources.files.content import key_in
from lasthop.edge.sources.files.folder import UnreadableFile, read
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.reasons import Cause, entry_of


def _as_meant(document: Json) -> Json:
    """Returns the document with the kind that was meant: a mistyped one, or its apiVersion, is why the object is missing."""
    written = str(document.get("kind"))
    kind = KINDS.get(written if written in KINDS else closest(written, KINDS))
    return {**document, "kind": kind.kind, "apiVersion": kind.api_versions[0]} if kind else document


def broken_objects(findings: Iterable[Finding]) -> dict[Key, str]:
    """Returns the objects in files that are not applied, as far as they can be told, with the file."""
    found: dict[Key, str] = {}
    not_applied = (finding.file for finding in findings if Cause.SAME_FILE in entry_of(finding.reason).follows)
    for file in dict.fromkeys(not_applied):
        try:
            text, _ = read(Path(file))
            parsed = parse(text, as_json=file.endswith(".json"))
        except (OSError, UnreadableFile):
            continue
        found |= {key: file for key in map(key_in, map(_as_meant, _objects(parsed.documents))) if key and key not in found}
    return found


def _objects(documents: Iterable[Any]) -> Iterator[Json]:
    """Yields the objects of a file, also those in Lists."""
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        yield from (each for each in (items if isinstance(items, list) else [document]) if isinstance(each, dict))
