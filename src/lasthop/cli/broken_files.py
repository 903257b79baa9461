"""The objects in files that are not applied, so that what misses them is not called a mistake of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.yaml import parse
from lasthop.edge.sources.files.content import key_in
from lasthop.edge.sources.files.folder import UnreadableFile, read
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.not_applied import NOT_APPLIED


def _as_meant(document: Json) -> Json:
    """Returns the document with the kind that was meant: a mistyped one, or its apiVersion, is why the object is missing."""
    written = str(document.get("kind"))
    kind = KINDS.get(written if written in KINDS else closest(written, KINDS))
    return {**document, "kind": kind.kind, "apiVersion": kind.api_versions[0]} if kind else document


def broken_objects(findings: Iterable[Finding]) -> dict[Key, str]:
    """Returns the objects in files that are not applied, as far as they can be told, with the file."""
    found: dict[Key, str] = {}
    for file in dict.fromkeys(finding.file for finding in findings if finding.reason in NOT_APPLIED):
        try:
            text, _ = read(Path(file))
            parsed = parse(text, as_json=file.endswith(".json"))
        except (OSError, UnreadableFile):
            continue
        for document in parsed.documents:
            items = document.get("items") if isinstance(document, dict) else None
            for each in items if isinstance(items, list) else [document]:
                if isinstance(each, dict) and (key := key_in(_as_meant(each))):
                    found.setdefault(key, file)
    return found
