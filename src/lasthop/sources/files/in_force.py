"""Which objects are in force, out of all good files: who provides each, what changed since last time.

The same object in two files: the file that provides it already goes on doing so; at the start the first by path does. A
namespace that objects use and nobody wrote is made up, as a cluster would have it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from lasthop.admission.chain import Admitted
from lasthop.admission.metadata import BEGINNING, NAMESPACE_LABEL, uid_of
from lasthop.api.core import Namespace
from lasthop.api.meta import Key, Object, ObjectMeta, StringMap
from lasthop.sources.files.content import Content, Entry

Complete = Callable[[str, Entry], Admitted]
"""Gives an entry of a file the content of the local files it names."""


class InForce:
    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.owners: dict[Key, str] = {}
        """Which file provides an object."""
        self.providers: dict[Key, dict[str, Entry]] = {}
        self.contested: set[Key] = set()
        """Objects that several files provide."""
        self._versions: dict[Key, tuple[int, bytes]] = {}
        self._used: Counter[str] = Counter()

    def replace(self, file: str, old: Content | None, new: Content | None) -> set[Key]:
        """A file's content changed. Gives the keys to settle."""
        touched = set()
        for entry in old.entries if old else ():
            touched.add(entry.admitted.key)
            del self.providers[entry.admitted.key][file]
        for entry in new.entries if new else ():
            touched.add(entry.admitted.key)
            self.providers.setdefault(entry.admitted.key, {})[file] = entry
        return touched

    def settle(self, touched: Iterable[Key], complete: Complete) -> dict[Key, Object | None]:
        """Decides anew about these keys. Gives what changed."""
        changes: dict[Key, Object | None] = {}
        namespaces = set()
        for key in touched:
            if key.kind == "Namespace":
                namespaces.add(key.name)
                continue
            existed = key in self.objects
            self._put(key, self._provided(key, complete), changes)
            if existed != (key in self.objects):
                self._used[key.namespace] += -1 if existed else 1
                namespaces.add(key.namespace)
        for name in namespaces - {""}:
            key = Key("Namespace", "", name)
            found = self._provided(key, complete)
            self._put(key, found or (_made_up(name) if self._used[name] else None), changes)
        return changes

    def _provided(self, key: Key, complete: Complete) -> Object | None:
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
        entry = files[owner]
        found = complete(owner, entry) if entry.admitted.attachments else entry.admitted
        return self._versioned(found)

    def _versioned(self, found: Admitted) -> Object:
        """With metadata.generation, which counts changes of everything but metadata while the process lives."""
        generation, digest = self._versions.get(found.key, (0, b""))
        if digest != found.digest:
            generation += 1
            self._versions[found.key] = (generation, found.digest)
        if generation == found.object.metadata.generation:
            return found.object
        return replace(found.object, metadata=replace(found.object.metadata, generation=generation))

    def _put(self, key: Key, found: Object | None, changes: dict[Key, Object | None]) -> None:
        if found == self.objects.get(key):
            return
        changes[key] = found
        if found is None:
            del self.objects[key]
        else:
            self.objects[key] = found


def _made_up(name: str) -> Namespace:
    return Namespace(
        metadata=ObjectMeta(
            name=name,
            uid=uid_of(Key("Namespace", "", name)),
            generation=1,
            creation_timestamp=BEGINNING,
            labels=StringMap.of({NAMESPACE_LABEL: name}),
        )
    )
