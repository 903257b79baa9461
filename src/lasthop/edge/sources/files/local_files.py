"""Keeps the local files that objects of good files take content from, and which objects use each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lasthop.base.api.meta import Key
from lasthop.edge.admission.chain import AdmittedObject
from lasthop.edge.sources.files.content import Content, ObjectEntry
from lasthop.edge.sources.files.fill import annotation_field, fill
from lasthop.edge.sources.files.folder import Roots, stamp_of
from lasthop.edge.sources.files.local_file import LocalFile, read_local, resolved
from lasthop.edge.sources.files.pairs import CERTIFICATE, KEY, Pairs
from lasthop.edge.sources.files.state import NoState, Pair, PairPaths
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, make_finding
from lasthop.engine.plan.not_applied import moment


class OlderPair(NamedTuple):
    pair: Pair
    why: str
    """Why the current files do not match."""
    field: str

    def finding(self, key: Key) -> Finding:
        message = f"{self.why}; the pair of {moment(self.pair.written)} stays in force."
        remedy = "Put the certificate and its own key there."
        return make_finding(key, reasons.OLDER_PAIR_IN_FORCE, message, remedy, self.field)


class FilledObject(NamedTuple):
    """Holds an object with the content of its local files."""

    admitted: AdmittedObject
    findings: tuple[Finding, ...] = ()
    """What is wrong with the files, without file and line."""
    older: OlderPair | None = None


class LocalFiles:
    def __init__(self, root: Path, allowed: Iterable[Path], state: NoState) -> None:
        self._root = root
        self._roots = Roots(root, allowed)
        self._state = state
        self.pairs = Pairs(state)
        self._files: dict[str, LocalFile] = {}
        self._used: dict[str, dict[Key, tuple[str, ...]]] = {}
        """By good file and object."""
        self._uses: Counter[str] = Counter()
        self._dropped = False
        self.unsaved: dict[str, bytes | None] = {}

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    @property
    def permitted(self) -> Iterable[str]:
        """The files that may be read, and so may be watched wherever they are."""
        return (path for path, file in self._files.items() if not file.outside)

    def read(self, path: str) -> LocalFile:
        """Reads a file without applying it."""
        known = self._files.get(path)
        if known is not None and not known.error and stamp_of(path) == known.stamp:
            return known
        if known:
            return read_local(path, self._roots, known.content)
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

    def use(self, file: str, content: Content | None) -> None:
        """Takes a good file's new content and reads the local files it newly names. `tidy` forgets those no longer named."""
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
        """Forgets unused files once all files have been applied: an object that moves between files keeps its content."""
        if not self._dropped:
            return
        self._dropped = False
        for path in [path for path in self._files if not self._uses[path]]:
            del self._files[path], self._uses[path]
            self.unsaved[path] = None
        self.pairs.keep_only(self._files.keys())

    def filled(self, file: str, entry: ObjectEntry) -> FilledObject:
        """Returns the object of an entry with the content of its local files, and what is wrong with these."""
        older = self._older(file, entry)
        instead = {CERTIFICATE: older.pair.certificate, KEY: older.pair.key} if older else {}
        admitted, findings = fill(entry.admitted, self._folder(file), self._files, instead)
        return FilledObject(admitted, (*([older.finding(admitted.key)] if older else ()), *findings), older)

    def _older(self, file: str, entry: ObjectEntry) -> OlderPair | None:
        """Returns the pair that stays in force if the files of the object do not match now."""
        named = {attachment.key: attachment for attachment in entry.admitted.attachments}
        if not {CERTIFICATE, KEY} <= named.keys():
            return None
        paths = PairPaths(*(resolved(self._folder(file), named[name]) for name in (CERTIFICATE, KEY)))
        certificate, private = self._files[paths.certificate], self._files[paths.key]
        if certificate.outside or private.outside or not (found := self.pairs.older(paths, certificate, private)):
            return None
        return OlderPair(*found, annotation_field(named[KEY]))

    def _folder(self, file: str) -> Path:
        return (self._root / file).parent

    def _keep(self, path: str, now: LocalFile) -> None:
        before = self._files.get(path)
        self._files[path] = now
        if now.content is not None and not now.error and (before is None or before.content != now.content):
            self.unsaved[path] = now.content


def _paths(uses: dict[Key, tuple[str, ...]]) -> set[str]:
    return {path for paths in uses.values() for path in paths}
