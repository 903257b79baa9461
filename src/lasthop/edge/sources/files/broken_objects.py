"""Finds the objects in files that are not applied, so that references to them are not reported separately."""

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
    """Returns the document with its kind or apiVersion corrected: a typo there is why the object is missing."""
    written = str(document.get("kind"))
    kind = KINDS.get(written if written in KINDS else closest(written, KINDS))
    return {**document, "kind": kind.kind, "apiVersion": kind.api_versions[0]} if kind else document


def broken_objects(findings: Iterable[Finding]) -> dict[Key, str]:
    """Returns the recognizable objects in files that are not applied, with the file."""
    by_key: dict[Key, str] = {}
    not_applied = (finding.file for finding in findings if Cause.SAME_FILE in entry_of(finding.reason).follows)
    for file in dict.fromkeys(not_applied):
        try:
            text, _ = read(Path(file))
            parsed = parse(text, as_json=file.endswith(".json"))
        except (OSError, UnreadableFile):
            continue
        by_key |= {key: file for key in map(key_in, map(_as_meant, _objects(parsed.documents))) if key and key not in by_key}
    return by_key


def _objects(documents: Iterable[Any]) -> Iterator[Json]:
    """Yields the objects of a file, including those in Lists."""
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        yield from (item for item in (items if isinstance(items, list) else [document]) if isinstance(item, dict))
