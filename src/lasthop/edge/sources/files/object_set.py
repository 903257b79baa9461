"""Decides which file provides each object in force, and returns the changes.

If two files contain the same object, the file that already provides it continues to do so; at the start it is the first by
path. A namespace that is used but not in any file is created, because a cluster would have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from lasthop.base.api.core import Namespace
from lasthop.base.api.meta import UNDATED, Key, Object, ObjectMeta, StringMap
from lasthop.edge.admission.chain import AdmittedObject
from lasthop.edge.admission.metadata import NAMESPACE_LABEL, uid_of
from lasthop.edge.sources.files.content import FileContent, ObjectEntry


class ObjectSet:
    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.owners: dict[Key, str] = {}
        """The file that provides each object."""
        self.providers: dict[Key, dict[str, ObjectEntry]] = {}
        self.contested: set[Key] = set()
        """Objects that several files provide."""
        self._versions: dict[Key, tuple[int, bytes]] = {}
        self._used: Counter[str] = Counter()

    def replace(self, file: str, old: FileContent | None, new: FileContent | None) -> set[Key]:
        """Replaces a file's content; returns the keys to choose again."""
        touched = set()
        for entry in old.entries if old else ():
            touched.add(entry.admitted.key)
            del self.providers[entry.admitted.key][file]
        for entry in new.entries if new else ():
            touched.add(entry.admitted.key)
            self.providers.setdefault(entry.admitted.key, {})[file] = entry
        return touched

    def choose(self, touched: Iterable[Key]) -> dict[Key, tuple[str, ObjectEntry] | None]:
        """Decides which file provides these objects; None for objects that no file provides any more."""
        return {key: self._chosen(key) for key in touched}

    def _chosen(self, key: Key) -> tuple[str, ObjectEntry] | None:
        files = self.providers.get(key)
        if not files:
            self.providers.pop(key, None)
            self.owners.pop(key, None)
            self._versions.pop(key, None)
            self.contested.discard(key)
            return None
        owner = self.owners.get(key)
        if owner not in files:
            owner = self.owners[key] = min(files)
        if len(files) > 1:
            self.contested.add(key)
        else:
            self.contested.discard(key)
        return owner, files[owner]

    def put(self, chosen: Mapping[Key, AdmittedObject | None]) -> dict[Key, Object | None]:
        """Puts the chosen objects in force; returns the changes."""
        changes: dict[Key, Object | None] = {}
        namespaces = set()
        for key, admitted in chosen.items():
            if key.kind == "Namespace":
                namespaces.add(key.name)
                continue
            had_object = key in self.objects
            self._put(key, self._versioned(admitted) if admitted else None, changes)
            if had_object != (key in self.objects):
                self._used[key.namespace] += -1 if had_object else 1
                namespaces.add(key.namespace)
        for name in namespaces - {""}:
            key = Key("Namespace", "", name)
            written = self.providers.get(key, {}).get(self.owners.get(key, ""))
            implied = _implied(name) if self._used[name] else None
            self._put(key, self._versioned(written.admitted) if written else implied, changes)
        return changes

    def _versioned(self, admitted: AdmittedObject) -> Object:
        """Sets metadata.generation, which counts changes of everything but metadata while the process runs."""
        generation, digest = self._versions.get(admitted.key, (0, b""))
        if digest != admitted.digest:
            generation += 1
            self._versions[admitted.key] = (generation, admitted.digest)
        if generation == admitted.object.metadata.generation:
            return admitted.object
        return replace(admitted.object, metadata=replace(admitted.object.metadata, generation=generation))

    def _put(self, key: Key, new: Object | None, changes: dict[Key, Object | None]) -> None:
        if new == self.objects.get(key):
            return
        changes[key] = new
        if new is None:
            del self.objects[key]
        else:
            self.objects[key] = new


def _implied(name: str) -> Namespace:
    return Namespace(
        metadata=ObjectMeta(
            name=name,
            uid=uid_of(Key("Namespace", "", name)),
            generation=1,
            creation_timestamp=UNDATED,
            labels=StringMap.of({NAMESPACE_LABEL: name}),
        )
    )
