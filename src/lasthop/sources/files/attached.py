"""Keeps the local files that the good files' objects take content from: what each says, who uses it, what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from lasthop.admission.chain import Admitted
from lasthop.admission.problem import field
from lasthop.api.meta import Key
from lasthop.plan.finding import Finding, Severity
from lasthop.plan.not_applied import NotApplied, moment
from lasthop.sources.files.content import Content, Entry
from lasthop.sources.files.folder import Roots, stamp_of
from lasthop.sources.files.local_files import LocalFile, read_local, resolved, with_files
from lasthop.sources.files.pairs import CERTIFICATE, KEY, Pair, PairPaths, Pairs

Place = Callable[[str, Entry, str], tuple[str, int]]
"""File and line of a field of an entry."""


class Attached:
    def __init__(
        self,
        root: Path,
        allowed: Iterable[Path],
        remembered: Callable[[str], bytes | None],
        remembered_pair: Callable[[PairPaths], Pair | None],
        place: Place,
    ) -> None:
        self._root = root
        self._roots = Roots(root, allowed)
        self._remembered = remembered
        """The last good content of a local file, from an earlier life."""
        self._place = place
        self.pairs = Pairs(remembered_pair)
        self._files: dict[str, LocalFile] = {}
        self._used: dict[str, dict[Key, tuple[str, ...]]] = {}
        """By good file and object."""
        self._uses: Counter[str] = Counter()
        self._dropped = False
        self._findings: dict[Key, tuple[Finding, ...]] = {}
        self._not_applied: dict[Key, NotApplied] = {}
        self.unsaved: dict[str, bytes | None] = {}

    @property
    def paths(self) -> Iterable[str]:
        return self._files.keys()

    @property
    def permitted(self) -> Iterable[str]:
        """Those that may be read, and so may be watched wherever they are."""
        return (path for path, file in self._files.items() if not file.outside)

    def findings(self) -> Iterable[Finding]:
        for _, findings in sorted(self._findings.items()):
            yield from findings

    def not_applied(self) -> Iterable[NotApplied]:
        return (told for _, told in sorted(self._not_applied.items()))

    def read(self, path: str) -> LocalFile:
        """What it says now, without believing it yet."""
        known = self._files.get(path)
        if known is not None and not known.error and stamp_of(path) == known.stamp:
            return known
        if known:
            return read_local(path, self._roots, known.content)
        return read_local(path, self._roots, None if path in self.unsaved else self._remembered(path))

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
        """A good file's content changed: reads what it newly names. `tidy` forgets what nothing names any more."""
        folder = (self._root / file).parent
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
        """Only when all files have been applied: an object that moves from one file to another keeps what it had."""
        if not self._dropped:
            return
        self._dropped = False
        for path in [path for path in self._files if not self._uses[path]]:
            del self._files[path], self._uses[path]
            self.unsaved[path] = None
        self.pairs.keep_only(self._files.keys())

    def complete(self, file: str, entry: Entry) -> Admitted:
        folder = (self._root / file).parent
        older = self._older(file, entry)
        instead = {CERTIFICATE: older.certificate, KEY: older.key} if older else {}
        found, troubles = with_files(entry.admitted, folder, self._files, instead)
        findings = list(self._findings.pop(found.key, ()))
        for trouble in troubles:
            where = field(("metadata", "annotations", trouble.attachment.annotation))
            shown, line = self._place(file, entry, where)
            findings.append(Finding(found.key, "LocalFile", trouble.message, trouble.remedy, where, file=shown, line=line))
        self._findings[found.key] = tuple(findings)
        return found

    def _older(self, file: str, entry: Entry) -> Pair | None:
        """The pair that stays in force, because the files that the object names are no pair now."""
        named = {each.key: each for each in entry.admitted.attachments}
        if not {CERTIFICATE, KEY} <= named.keys():
            return None
        folder, key = (self._root / file).parent, entry.admitted.key
        paths = PairPaths(resolved(folder, named[CERTIFICATE]), resolved(folder, named[KEY]))
        certificate, private = self._files[paths.certificate], self._files[paths.key]
        if certificate.outside or private.outside or not (found := self.pairs.older(paths, certificate, private)):
            return None
        pair, why = found
        since = moment(pair.written)
        where = field(("metadata", "annotations", named[KEY].annotation))
        shown, line = self._place(file, entry, where)
        said, remedy = f"{why}; the pair of {since} stays in force.", "Put the certificate and its own key there."
        finding = Finding(key, "OlderPairInForce", said, remedy, where, Severity.WARNING, shown, line)
        self._findings[key] = (finding,)
        self._not_applied[key] = NotApplied(shown, line, why, since, (key,))
        return pair

    def forget(self, key: Key) -> None:
        """The object is gone, or takes nothing from files any more."""
        self._findings.pop(key, None)
        self._not_applied.pop(key, None)

    def _keep(self, path: str, now: LocalFile) -> None:
        before = self._files.get(path)
        self._files[path] = now
        if now.content is not None and not now.error and (before is None or before.content != now.content):
            self.unsaved[path] = now.content


def _paths(uses: dict[Key, tuple[str, ...]]) -> set[str]:
    return {path for paths in uses.values() for path in paths}
