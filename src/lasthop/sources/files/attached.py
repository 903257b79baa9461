"""Keeps the local files that the good files' objects take content from: what each says, who uses it, what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lasthop.api.meta import Key
from lasthop.plan.finding import Finding
from lasthop.sources.files.admission import Admitted
from lasthop.sources.files.content import Content, Entry
from lasthop.sources.files.folder import stamp_of
from lasthop.sources.files.local_files import LocalFile, read_local, resolved, with_files
from lasthop.sources.files.problem import field

Place = Callable[[str, Entry, str], tuple[str, int]]
"""File and line of a field of an entry."""


class Attached:
    def __init__(self, root: Path, remembered: Callable[[str], bytes | None], place: Place) -> None:
        self._root = root
        self._remembered = remembered
        """The last good content of a local file, from an earlier life."""
        self._place = place
        self._files: dict[str, LocalFile] = {}
        self._used: dict[str, dict[Key, tuple[str, ...]]] = {}
        """By good file and object."""
        self._findings: dict[Key, tuple[Finding, ...]] = {}
        self.unsaved: dict[str, bytes | None] = {}

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    def findings(self) -> Iterable[Finding]:
        for findings in self._findings.values():
            yield from findings

    def read(self, path: str) -> LocalFile:
        """What it says now, without believing it yet."""
        known = self._files.get(path)
        if known is not None and not known.error and stamp_of(path) == known.stamp:
            return known
        return read_local(path, known.content if known else self._remembered(path))

    def changed(self) -> dict[str, LocalFile]:
        return {path: now for path, before in self._files.items() if (now := self.read(path)) != before}

    def worse(self, path: str, now: LocalFile) -> bool:
        return bool(now.error) and path in self._files and not self._files[path].error

    def apply(self, path: str, now: LocalFile) -> set[Key]:
        """Gives the objects that take content from it."""
        if path not in self._files:
            return set()
        self._keep(path, now)
        return {key for keys in self._used.values() for key, paths in keys.items() if path in paths}

    def use(self, file: str, content: Content | None) -> None:
        """A good file's content changed: reads what it newly names, forgets what nobody names any more."""
        folder = (self._root / file).parent
        before = self._used.pop(file, None)
        used = {
            entry.admitted.key: tuple(resolved(folder, attachment) for attachment in entry.admitted.attachments)
            for entry in (content.entries if content else ())
            if entry.admitted.attachments
        }
        if used:
            self._used[file] = used
        for path in _paths([used]) - self._files.keys():
            self._keep(path, self.read(path))
        if before:
            for path in _paths([before]) - _paths(self._used.values()):
                del self._files[path]
                self.unsaved[path] = None

    def complete(self, file: str, entry: Entry) -> Admitted:
        found, troubles = with_files(entry.admitted, (self._root / file).parent, self._files)
        findings = []
        for trouble in troubles:
            where = field(("metadata", "annotations", trouble.attachment.annotation))
            shown, line = self._place(file, entry, where)
            findings.append(Finding(found.key, "LocalFile", trouble.message, trouble.remedy, where, file=shown, line=line))
        self._findings[found.key] = tuple(findings)
        return found

    def forget(self, key: Key) -> None:
        """The object is gone, or takes nothing from files any more."""
        self._findings.pop(key, None)

    def _keep(self, path: str, now: LocalFile) -> None:
        before = self._files.get(path)
        self._files[path] = now
        if now.content is not None and not now.error and (before is None or before.content != now.content):
            self.unsaved[path] = now.content


def _paths(uses: Iterable[dict[Key, tuple[str, ...]]]) -> set[str]:
    return {path for keys in uses for paths in keys.values() for path in paths}
