"""Reports the problems of the folder, and the BackendTLSPolicies that must fail closed because of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.base.text.suggestions import closest
from lasthop.edge.admission.yaml import parse
from lasthop.edge.sources.files.content import BrokenFile, key_in
from lasthop.edge.sources.files.file_set import MAKE_READABLE, ManifestFile
from lasthop.edge.sources.files.folder import UnreadableFile, read
from lasthop.edge.sources.files.object_set import ObjectSet
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.not_applied import NotApplied, moment
from lasthop.engine.plan.reasons import Cause, entry_of


def of_broken(refused: NotApplied, broken: BrokenFile) -> Iterator[Finding]:
    yield from broken.findings
    missing = tuple(Key("BackendTLSPolicy", namespace, "") for namespace in broken.opaque)
    remedy, where = "", "" if "" in broken.opaque else f" of namespace {', '.join(broken.opaque)}"
    if broken.opaque:
        remedy = f"As it may contain a BackendTLSPolicy, no new backend{where} is served in plaintext until it is corrected."
    place: Any = {"file": refused.file, "line": refused.line, "missing": missing}
    if refused.since:
        message = f"none of this file is applied; its last good content, of {refused.since}, stays in force."
        yield make_finding(None, reasons.OLDER_TEXT_IN_FORCE, message, remedy, **place)
    else:
        message = "none of this file is applied, and it has no last good content."
        yield make_finding(None, reasons.FILE_NOT_APPLIED, message, remedy, **place)


def of_pending(shown: str) -> Unknown:
    """Reports a file that is still being read; a policy may just have moved into it."""
    return Unknown(provable=False, namespace="", why=f"{shown} has not been read yet", file=shown)


def of_closed(shown: str, reason: str) -> Unknown:
    return Unknown(provable=False, namespace="", why=f"{shown} cannot be read: {reason}", remedy=MAKE_READABLE, file=shown)


def of_opaque(broken: BrokenFile) -> Iterator[Unknown]:
    first = broken.findings[0]
    why = f"{first.file}:{first.line} cannot be fully read: {first.message.removesuffix('.')}"
    for namespace in broken.opaque:
        yield Unknown(provable=False, namespace=namespace, why=why, remedy="correct that file", file=first.file)


def not_applied(shown: str, broken: BrokenFile, file: ManifestFile | None) -> NotApplied:
    first = broken.findings[0]
    if file is None or file.good is None:
        return NotApplied(shown, first.line, first.message)
    return NotApplied(shown, first.line, first.message, moment(file.written), tuple(sorted(file.good.keys)))


def of_contested(key: Key, used: tuple[str, int], duplicates: Iterable[tuple[str, int]]) -> Iterator[Finding]:
    """Reports an object that several files provide, at each place except the place in force."""
    for file, line in duplicates:
        message = f"duplicate of {used[0]}:{used[1]}, which is used."
        yield make_finding(key, reasons.DUPLICATE_OBJECT, message, file=file, line=line)


def of_folders(root: str, closed: Mapping[str, str], repeated: Mapping[str, str]) -> Iterator[Finding]:
    for path, why in sorted(closed.items()):
        message = f"cannot be read: {why}. Its last content stays in force."
        missing = (Key("BackendTLSPolicy", "", ""),)
        yield make_finding(None, reasons.UNREADABLE, message, MAKE_READABLE, file=f"{root}/{path}", line=1, missing=missing)
    for path, folder in sorted(repeated.items()):
        message = f"the link leads to a folder that is already read as {folder}."
        yield make_finding(None, reasons.REPEATED_FOLDER, message, file=f"{root}/{path}", line=1)


def rejected(broken: Iterable[BrokenFile], objects: ObjectSet) -> dict[Key, RejectedPolicy]:
    """Returns the policies in broken files, and duplicates in other files, with the targets that are not in the text in
    force."""
    result: dict[Key, RejectedPolicy] = {}
    for policy in [*(p for file in broken for p in file.policies), *_duplicates(objects)]:
        key = Key("BackendTLSPolicy", policy.metadata.namespace, policy.metadata.name)
        good = objects.objects.get(key)
        assert good is None or isinstance(good, BackendTLSPolicy)
        first = result.get(key, replace(policy, targets=(), last_good=good))
        covered = {*first.targets, *(good.spec.target_refs if good else ())}
        targets = (*first.targets, *(target for target in policy.targets if target not in covered))
        if targets:
            result[key] = replace(first, targets=targets)
    return result


def _duplicates(objects: ObjectSet) -> Iterator[RejectedPolicy]:
    for key in sorted(objects.contested):
        if key.kind == "BackendTLSPolicy":
            owner = objects.owners[key]
            for file, entry in sorted(objects.providers[key].items()):
                if file != owner:
                    policy = entry.admitted.object
                    assert isinstance(policy, BackendTLSPolicy)
                    message = f"the policy is in both {owner} and {file}; the first is used"
                    yield RejectedPolicy(metadata=policy.metadata, targets=policy.spec.target_refs, message=message)


def _corrected(document: Json) -> Json:
    """Returns the document with its kind or apiVersion corrected, because a typo there makes its object missing."""
    kind_name = str(document.get("kind"))
    kind = KINDS.get(kind_name if kind_name in KINDS else closest(kind_name, KINDS))
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
        by_key |= {key: file for key in map(key_in, map(_corrected, _objects(parsed.documents))) if key and key not in by_key}
    return by_key


def _objects(documents: Iterable[Any]) -> Iterator[Json]:
    """Yields the objects of a file, including those in Lists."""
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        yield from (item for item in (items if isinstance(items, list) else [document]) if isinstance(item, dict))
