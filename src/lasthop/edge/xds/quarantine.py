"""Decides which parts of the configuration are withheld from Envoy because it has rejected them, or may have.

    NACK ──> suspects: every part that differs from what was last confirmed. All are quarantined at once, so that the
             rest can be sent again (a route table that is refused blocks every later edit of it:
             docs/measurements.md#acknowledgements)
    then, if there are several:
             release half ──ACK──> cleared for good        (next half)
                          ──NACK─> one: convicted, several: split again

The engine reads `quarantined` as an input, builds a 500, a closed chain or no cluster in place of each such part, applies
that to the cache and calls `served`. What stands in for a part is either beyond suspicion and not listed in
`Resource.parts`, or a part of its own, with the same id and another hash, which may be refused in turn. A part the user has
edited has another hash, too, so it is not in quarantine any more.
Each method returns whether `quarantined` has changed, so whether to build again.

A rejection counts only for what no other proxy of the Gateway has acknowledged: the proxy that rejects it may be broken.
Clusters are the exception. A proxy that rejects one keeps its old version, perhaps a weaker one, so it is withdrawn from all.

Pure: no time, no I/O. One per Gateway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lasthop.base.api.meta import Key
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.nack import is_environment, reasons, summary
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, Part, Resource, parts_of

_NO_OWNER: Final = Key("", "", "")


class _Search:
    """Searches the suspects of one type by bisection."""

    def __init__(self) -> None:
        self.groups: list[tuple[Part, ...]] = []
        """Suspects that wait for their trial, a group each."""
        self.trial: dict[Part, str] = {}
        """Suspects that are released until a verdict comes; with the name of the resource they were seen in."""


class Quarantine:
    def __init__(self) -> None:
        self._confirmed: dict[tuple[str, str], Mapping[str, str]] = {}
        """The parts of each resource, by type and name, as last confirmed."""
        self._home: dict[Part, str] = {}
        """The resource a suspect was seen in."""
        self._details: dict[Part, str] = {}
        """Envoy's message about everything that is or was suspected and is not cleared."""
        self._convicted: set[Part] = set()
        self._searches: dict[str, _Search] = {}
        self.environment: dict[tuple[str, str], str] = {}
        """Resources rejected for reasons of the host (a port in use), by type and name: the resources are valid."""
        self.unattributed: dict[tuple[str, str], str] = {}
        """Rejected resources of which no part can be blamed, by type and name."""

    @property
    def quarantined(self) -> frozenset[Part]:
        waiting = (part for search in self._searches.values() for group in search.groups for part in group)
        return frozenset(self._convicted).union(waiting)

    @property
    def convicted(self) -> frozenset[Part]:
        return frozenset(self._convicted)

    def detail(self, part: Part) -> str:
        return self._details.get(part, "")

    def nacked(self, type_url: str, resources: Mapping[str, Resource], detail: str) -> bool:
        before = self.quarantined
        accused = reasons(detail, resources)
        blamed = dict.fromkeys(resources, detail) if accused is None else dict(accused)
        if type_url == LISTENER:
            self._excuse_environment(blamed)

        here = {part: r.name for r in resources.values() for part in parts_of(r)}
        if not before.isdisjoint(here):
            return False  # sent before the quarantine: a second proxy refuses what the first one has refused

        suspects = self._suspects(here, blamed)
        if not suspects:
            self.unattributed.update({(type_url, name): summary(why) for name, why in blamed.items()})
        search = self._searches.setdefault(type_url, _Search())
        for group in _by_home(suspects, here) if accused else [suspects]:
            self._hold(search, group)
        return self.quarantined != before

    def _excuse_environment(self, blamed: dict[str, str]) -> None:
        """Takes listeners out of the blamed ones that were rejected for reasons of the host."""
        for name in [name for name, why in blamed.items() if is_environment(why)]:
            self.environment[LISTENER, name] = blamed.pop(name)

    def _suspects(self, here: Mapping[Part, str], blamed: Mapping[str, str]) -> list[Part]:
        """Returns the parts of blamed resources that differ from what was confirmed: not only those on trial, because the user
        may have edited something else in the same moment."""
        suspects = [part for part, name in here.items() if name in blamed and self._differs(part, name)]
        # Halves are of one owner where possible, so that uninvolved owners are released early and completely.
        suspects.sort(key=lambda part: (part.owner or _NO_OWNER, part.id))
        for part in suspects:
            self._home[part] = here[part]
            self._details[part] = summary(blamed[here[part]])
        return suspects

    @property
    def problem(self) -> str:
        """What is wrong and cannot be attributed to any part."""
        return "; ".join((*self.environment.values(), *self.unattributed.values()))

    def connected(self) -> None:
        """Resets the problems of other proxies, or of this one before it reconnected."""
        self.environment.clear()
        self.unattributed.clear()

    def forget(self, parts: Iterable[Part]) -> None:
        """Forgets parts that no longer exist: if they are written again, they are tried again."""
        for part in parts:
            self._convicted.discard(part)
            self._home.pop(part, None)
            self._details.pop(part, None)

    def acked(self, type_url: str, resources: Mapping[str, Resource], removed: Iterable[str] = ()) -> bool:
        """Takes an acknowledgement, also of a response that only removed something: then the quarantine has taken effect."""
        before = self.quarantined
        search = self._searches.get(type_url)
        for name in removed:
            self._confirmed.pop((type_url, name), None)
            self.environment.pop((type_url, name), None)
            self.unattributed.pop((type_url, name), None)
        for name, resource in resources.items():
            self._confirmed[type_url, name] = resource.parts
            self.environment.pop((type_url, name), None)
            self.unattributed.pop((type_url, name), None)
            if search is not None:
                for part in search.trial.keys() & set(parts_of(resource)):
                    self._clear(search, part)
                if type_url != CLUSTER:
                    for part in before.intersection(parts_of(resource)):
                        self._acquit(search, part)
        if search is not None:
            self._next_trial(search)
        return self.quarantined != before

    def served(self, cache: Cache, built_without: frozenset[Part]) -> bool:
        """Learns that the cache holds what was built without these. A suspect that is released but not in it has been removed
        or edited meanwhile; it will never be answered, so it is dropped from the search."""
        for troubled in (self.environment, self.unattributed):
            for type_url, name in [each for each in troubled if not isinstance(cache.get(*each), Resource)]:
                del troubled[type_url, name]
        before = self.quarantined
        if built_without != before:
            return False  # overtaken: the engine will build again
        for search in self._searches.values():
            for part, name in list(search.trial.items()):
                change = cache.get(part.type_url, name)
                if not (isinstance(change, Resource) and change.parts.get(part.id) == part.hash):
                    self._clear(search, part)
                    self._next_trial(search)
        return self.quarantined != before

    def _differs(self, part: Part, name: str) -> bool:
        return self._confirmed.get((part.type_url, name), {}).get(part.id) != part.hash

    def _hold(self, search: _Search, group: list[Part]) -> None:
        for part in group:
            search.trial.pop(part, None)
        if len(group) == 1:
            self._convicted.update(group)
        elif group:
            middle = len(group) // 2
            search.groups += [tuple(group[:middle]), tuple(group[middle:])]

    def _next_trial(self, search: _Search) -> None:
        if search.groups and not search.trial:
            search.trial = {part: self._home[part] for part in search.groups.pop()}

    def _acquit(self, search: _Search, part: Part) -> None:
        """Releases a part that another proxy has acknowledged, from a response that was sent before."""
        self._convicted.discard(part)
        remaining = (tuple(each for each in group if each != part) for group in search.groups)
        search.groups = [group for group in remaining if group]
        del self._home[part], self._details[part]

    def _clear(self, search: _Search, part: Part) -> None:
        del search.trial[part], self._home[part], self._details[part]


def _by_home(parts: list[Part], home: Mapping[Part, str]) -> list[list[Part]]:
    """Groups parts by resource: when Envoy names several resources, each of them has a rejected part."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(home[part], []).append(part)
    return list(groups.values())
