"""Tracks the local files that supply content to objects of good files, and the objects that use each file.

Certificate and key come from two local files, which are renewed one after the other and do not match in between. Until they
match again, the last matching pair stays in force. The state directory keeps it too, so a restart in between changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from lasthop.base.api.core import ConfigMap, Secret
from lasthop.base.api.meta import BytesMap, Key, Object, StringMap
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Unreadable
from lasthop.edge.admission.attachments import Attachment
from lasthop.edge.admission.chain import AdmittedObject
from lasthop.edge.admission.limits import MAX_DATA
from lasthop.edge.admission.problem import field
from lasthop.edge.sources.files.content import FileContent, ObjectEntry
from lasthop.edge.sources.files.folder import Roots, stamp_of
from lasthop.edge.sources.files.local_file import LocalFile, read_local, resolved
from lasthop.edge.sources.files.state import NoState, Pair, PairPaths
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.not_applied import moment

CERTIFICATE, KEY = "tls.crt", "tls.key"


class Pairs:
    def __init__(self, state: NoState) -> None:
        self._state = state
        self._good: dict[PairPaths, Pair] = {}
        self.unsaved: dict[PairPaths, Pair | None] = {}

    def older(self, paths: PairPaths, certificate: LocalFile, key: LocalFile) -> tuple[Pair, str] | None:
        """Returns the last good pair and the reason if the current files do not match; None if they match, or if there is no
        good pair."""
        good = self._last_good(paths)
        if good and (certificate.content, key.content) == good[:2]:
            return None
        why = mismatch(certificate.content, key.content)
        if not why:
            assert certificate.content is not None and key.content is not None
            times = (file.stamp.mtime for file in (certificate, key) if file.stamp)
            self._good[paths] = self.unsaved[paths] = Pair(certificate.content, key.content, max(times, default=0))
            return None
        return (good, why) if good else None

    def _last_good(self, paths: PairPaths) -> Pair | None:
        if paths not in self._good and paths not in self.unsaved and (last := self._state.pair(paths)):
            self._good[paths] = last
        return self._good.get(paths)

    def keep_only(self, used: Collection[str]) -> None:
        for paths in [paths for paths in self._good if not all(path in used for path in paths)]:
            del self._good[paths]
            self.unsaved[paths] = None


def mismatch(certificate: bytes | None, key: bytes | None) -> str:
    """Returns the reason why the two do not match; empty if the key belongs to the first certificate."""
    if certificate is None or key is None:
        return f"{KEY if certificate else CERTIFICATE} cannot be read"
    chain, private = parse.certificates(certificate), parse.private_key(key)
    if isinstance(chain, Unreadable):
        return f"{CERTIFICATE} {chain.message}"
    if isinstance(private, Unreadable):
        return f"{KEY} {private.message}"
    return "" if private.spki == chain[0].spki else f"{KEY} does not belong to {CERTIFICATE}"


class OlderPair(NamedTuple):
    pair: Pair
    why: str
    """The reason why the current files do not match."""
    field: str

    def finding(self, key: Key) -> Finding:
        message = f"{self.why}; the pair of {moment(self.pair.written)} stays in force."
        remedy = "Put the certificate and its own key there."
        return make_finding(key, reasons.OLDER_PAIR_IN_FORCE, message, remedy, self.field)


class FilledObject(NamedTuple):
    admitted: AdmittedObject
    findings: tuple[Finding, ...] = ()
    """Problems of the files, without file and line."""
    older: OlderPair | None = None


class LocalFiles:
    def __init__(self, root: Path, allowed: Iterable[Path], state: NoState) -> None:
        self._root = root
        self._roots = Roots(root, allowed)
        self._state = state
        self.pairs = Pairs(state)
        self._files: dict[str, LocalFile] = {}
        self._used: dict[str, dict[Key, tuple[str, ...]]] = {}
        """Paths of local files, by good file and object."""
        self._uses: Counter[str] = Counter()
        self._dropped = False
        self.unsaved: dict[str, bytes | None] = {}

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    @property
    def permitted(self) -> Iterable[str]:
        """Returns the files that may be read, and therefore watched wherever they are."""
        return (path for path, file in self._files.items() if not file.outside)

    def read(self, path: str) -> LocalFile:
        """Reads a file without applying it."""
        file = self._files.get(path)
        if file is not None and not file.error and stamp_of(path) == file.stamp:
            return file
        if file:
            return read_local(path, self._roots, file.content)
        return read_local(path, self._roots, None if path in self.unsaved else self._state.local_file(path))

    def changed(self) -> dict[str, LocalFile]:
        return {path: now for path, before in self._files.items() if (now := self.read(path)) != before}

    def worse(self, path: str, now: LocalFile) -> bool:
        return bool(now.error) and path in self._files and not self._files[path].error

    def apply(self, path: str, now: LocalFile) -> set[Key]:
        """Applies a reading, and returns the objects that use the file."""
        if path not in self._files:
            return set()
        self._keep(path, now)
        return {key for keys in self._used.values() for key, paths in keys.items() if path in paths}

    def use(self, file: str, content: FileContent | None) -> None:
        """Records a good file's new content and reads newly named local files. `tidy` forgets files that are no longer
        named."""
        folder = self._folder(file)
        before = self._used.pop(file, None)
        used = {
            entry.admitted.key: tuple(resolved(folder, attachment) for attachment in entry.admitted.attachments)
            for entry in (content.entries if content else ())
            if entry.admitted.attachments
        }
        if used:
            self._used[file] = used
        self._uses.update(_paths(used))
        for path in _paths(used) - self._files.keys():
            self._keep(path, self.read(path))
        if before:
            self._uses.subtract(_paths(before))
            self._dropped = True

    def tidy(self) -> None:
        """Forgets unused files once all files have been applied, so that an object that moves between files keeps its
        content."""
        if not self._dropped:
            return
        self._dropped = False
        for path in [path for path in self._files if not self._uses[path]]:
            del self._files[path], self._uses[path]
            self.unsaved[path] = None
        self.pairs.keep_only(self._files.keys())

    def edited_while_stopped(self) -> dict[Key, Path]:
        """Returns the objects whose local files differ from the content that an earlier process saved."""
        saved = {path: self._state.local_file(path) for path in self._files}
        edited = {path for path, content in saved.items() if content is not None and content != self._files[path].content}
        used = (item for keys in self._used.values() for item in keys.items())
        return {key: Path(path) for key, paths in used for path in paths if path in edited}

    def filled(self, file: str, entry: ObjectEntry) -> FilledObject:
        """Returns the object of an entry with the content of its local files, and problems of these files."""
        older = self._older(file, entry)
        replacements = {CERTIFICATE: older.pair.certificate, KEY: older.pair.key} if older else {}
        admitted, findings = fill(entry.admitted, self._folder(file), self._files, replacements)
        return FilledObject(admitted, (*([older.finding(admitted.key)] if older else ()), *findings), older)

    def _older(self, file: str, entry: ObjectEntry) -> OlderPair | None:
        """Returns the pair that stays in force if the object's files do not match now."""
        attachments = {attachment.key: attachment for attachment in entry.admitted.attachments}
        if not {CERTIFICATE, KEY} <= attachments.keys():
            return None
        paths = PairPaths(*(resolved(self._folder(file), attachments[name]) for name in (CERTIFICATE, KEY)))
        certificate, private = self._files[paths.certificate], self._files[paths.key]
        if certificate.outside or private.outside or not (older := self.pairs.older(paths, certificate, private)):
            return None
        return OlderPair(*older, annotation_field(attachments[KEY]))

    def _folder(self, file: str) -> Path:
        return (self._root / file).parent

    def _keep(self, path: str, now: LocalFile) -> None:
        before = self._files.get(path)
        self._files[path] = now
        if now.content is not None and not now.error and (before is None or before.content != now.content):
            self.unsaved[path] = now.content


def _paths(uses: dict[Key, tuple[str, ...]]) -> set[str]:
    return {path for paths in uses.values() for path in paths}


def fill(
    entry: AdmittedObject, folder: Path, local: Mapping[str, LocalFile], replacements: Mapping[str, bytes]
) -> tuple[AdmittedObject, list[Finding]]:
    """Puts the content of its files, or `replacements` by key, into an object. A key without content is omitted.

    Problems are returned as findings without file and line.
    """
    contents: dict[str, bytes] = {}
    findings: list[Finding] = []
    for attachment in entry.attachments:
        path = resolved(folder, attachment)
        file = local[path]
        content = replacements.get(attachment.key, file.content)
        if file.error:
            consequence = "Its last content stays in use." if content is not None else "The key is omitted."
            remedy = file.remedy
            if file.outside:
                remedy = f"Put it there, or allow it with: --allow-files {os.path.dirname(file.leads_to or path)}"
            findings.append(_finding(entry, attachment, f"{path} {file.error}. {consequence}", remedy))
        if content is not None:
            contents[attachment.key] = content
    obj, fill_findings = _filled(entry, contents)
    digest = hashlib.blake2b(entry.digest, digest_size=16)
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + hashlib.blake2b(content).digest())
    return replace(entry, object=obj, digest=digest.digest()), findings + fill_findings


def _filled(entry: AdmittedObject, contents: dict[str, bytes]) -> tuple[Object, list[Finding]]:
    obj = entry.object
    findings: list[Finding] = []
    filled: ConfigMap | Secret
    if isinstance(obj, Secret):
        data = {**dict(obj.data), **contents}
        filled = replace(obj, data=BytesMap(sorted(data.items())))
    else:
        assert isinstance(obj, ConfigMap)
        texts, findings = _texts(entry, contents)
        filled = replace(obj, data=StringMap.of({**dict(obj.data), **texts}))
        data = {name: text.encode() for name, text in filled.data}
    if sum(map(len, data.values())) > MAX_DATA:
        return obj, [_too_large(entry, attachment) for attachment in entry.attachments]
    return filled, findings


def _texts(entry: AdmittedObject, contents: dict[str, bytes]) -> tuple[dict[str, str], list[Finding]]:
    texts: dict[str, str] = {}
    findings: list[Finding] = []
    attachments = {attachment.key: attachment for attachment in entry.attachments}
    for name, content in contents.items():
        try:
            texts[name] = content.decode()
        except UnicodeDecodeError:
            message = "a ConfigMap contains text, and this file is not UTF-8. The key is omitted"
            findings.append(_finding(entry, attachments[name], message, "Convert it to PEM, or use a Secret."))
    return texts, findings


def _too_large(entry: AdmittedObject, attachment: Attachment) -> Finding:
    message = f"with its files the object is larger than {MAX_DATA} bytes. They are omitted"
    return _finding(entry, attachment, message, "Split it into several objects.")


def _finding(entry: AdmittedObject, attachment: Attachment, message: str, remedy: str) -> Finding:
    return make_finding(entry.key, reasons.LOCAL_FILE, message, remedy, annotation_field(attachment))


def annotation_field(attachment: Attachment) -> str:
    return field(("metadata", "annotations", attachment.annotation))
