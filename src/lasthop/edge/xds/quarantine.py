"""Withholds configuration from Envoy that it has rejected, and finds the rejected parts by bisection.

    NACK ──> candidates: every part that differs from its last confirmed version. All are quarantined at once, so that the
             other parts can be sent again (a rejected route table blocks every later edit of it:
             docs/measurements.md#acknowledgements)
    then, if there are several:
             release half ──ACK──> cleared for good        (next half)
                          ──NACK─> one part: culprit, several: split again

The engine reads `quarantined` as an input and replaces each such part with a 500, a closed chain or no cluster. It applies the
result to the cache and calls `served`. A replacement is either known to be valid and not listed in `Resource.parts`, or
another part with the same id and another hash, which Envoy may reject in turn. A part that the user has edited has a new
hash, so it leaves the quarantine. Each method returns whether `quarantined` has changed and the engine must build again.

A NACK counts only for parts that no other proxy of the Gateway has acknowledged, because the rejecting proxy may be broken.
Clusters are the exception. A proxy that rejects a cluster keeps its old version, perhaps a weaker one, so the cluster is
withdrawn from all proxies.

Each Gateway has one `Quarantine`. It uses neither time nor I/O.
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
    """Bisects the candidates of one type."""

    def __init__(self) -> None:
        self.groups: list[tuple[Part, ...]] = []
        """Candidates to be probed later, in groups."""
        self.probing: dict[Part, str] = {}
        """Candidates that are released until Envoy answers, with the name of their resource."""


class Quarantine:
    def __init__(self) -> None:
        self._confirmed: dict[tuple[str, str], Mapping[str, str]] = {}
        """The parts of each resource, by type and name, in the last confirmed version."""
        self._resource_of: dict[Part, str] = {}
        """The name of each candidate's resource."""
        self._details: dict[Part, str] = {}
        """Envoy's message for each part that is or was a candidate and is not cleared."""
        self._culprits: set[Part] = set()
        self._searches: dict[str, _Search] = {}
        self.environment: dict[tuple[str, str], str] = {}
        """Resources rejected because of the host (a port in use), by type and name. The resources are valid."""
        self.unattributed: dict[tuple[str, str], str] = {}
        """Rejected resources without a candidate, by type and name."""

    @property
    def quarantined(self) -> frozenset[Part]:
        waiting = (part for search in self._searches.values() for group in search.groups for part in group)
        return frozenset(self._culprits).union(waiting)

    @property
    def culprits(self) -> frozenset[Part]:
        return frozenset(self._culprits)

    def detail(self, part: Part) -> str:
        return self._details.get(part, "")

    def nacked(self, type_url: str, resources: Mapping[str, Resource], detail: str) -> bool:
        before = self.quarantined
        named_reasons = reasons(detail, resources)
        rejected = dict.fromkeys(resources, detail) if named_reasons is None else dict(named_reasons)
        if type_url == LISTENER:
            self._separate_host_rejections(rejected)

        sent_in = {part: r.name for r in resources.values() for part in parts_of(r)}
        if not before.isdisjoint(sent_in):
            return False  # sent before the quarantine, and rejected by a second proxy

        candidates = self._candidates(sent_in, rejected)
        if not candidates:
            self.unattributed.update({(type_url, name): summary(why) for name, why in rejected.items()})
        search = self._searches.setdefault(type_url, _Search())
        for group in _by_resource(candidates, sent_in) if named_reasons else [candidates]:
            self._hold(search, group)
        return self.quarantined != before

    def _separate_host_rejections(self, rejected: dict[str, str]) -> None:
        """Removes listeners from `rejected` that were rejected because of the host."""
        for name in [name for name, why in rejected.items() if is_environment(why)]:
            self.environment[LISTENER, name] = rejected.pop(name)

    def _candidates(self, sent_in: Mapping[Part, str], rejected: Mapping[str, str]) -> list[Part]:
        """Returns the parts of rejected resources that differ from the confirmed version. They are not limited to the probed
        parts, because the user may have edited another part in the same moment."""
        candidates = [part for part, name in sent_in.items() if name in rejected and self._differs(part, name)]
        # Halves have one owner where possible, so that the parts of other owners are released early and completely.
        candidates.sort(key=lambda part: (part.owner or _NO_OWNER, part.id))
        for part in candidates:
            self._resource_of[part] = sent_in[part]
            self._details[part] = summary(rejected[sent_in[part]])
        return candidates

    @property
    def problem(self) -> str:
        """Returns the rejections that are not attributed to a part."""
        return "; ".join((*self.environment.values(), *self.unattributed.values()))

    def connected(self) -> None:
        """Resets the problems of other proxies, or of this one before it reconnected."""
        self.environment.clear()
        self.unattributed.clear()

    def forget(self, parts: Iterable[Part]) -> None:
        """Forgets parts that no longer exist. They are probed again if they come back."""
        for part in parts:
            self._culprits.discard(part)
            self._resource_of.pop(part, None)
            self._details.pop(part, None)

    def acked(self, type_url: str, resources: Mapping[str, Resource], removed: Iterable[str] = ()) -> bool:
        """Records an ACK, even of a response with only removals, because such an ACK confirms the quarantine."""
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
                for part in search.probing.keys() & set(parts_of(resource)):
                    self._clear(search, part)
                if type_url != CLUSTER:
                    for part in before.intersection(parts_of(resource)):
                        self._release(search, part)
        if search is not None:
            self._probe_next(search)
        return self.quarantined != before

    def served(self, cache: Cache, built_without: frozenset[Part]) -> bool:
        """Records that the cache holds the configuration built without these parts. A probed part that is not in the cache has
        been removed or edited meanwhile. Envoy will not answer for it, so it leaves the search."""
        for problems in (self.environment, self.unattributed):
            for type_url, name in [key for key in problems if not isinstance(cache.get(*key), Resource)]:
                del problems[type_url, name]
        before = self.quarantined
        if built_without != before:
            return False  # overtaken: the engine will build again
        for search in self._searches.values():
            for part, name in list(search.probing.items()):
                change = cache.get(part.type_url, name)
                if not (isinstance(change, Resource) and change.parts.get(part.id) == part.hash):
                    self._clear(search, part)
                    self._probe_next(search)
        return self.quarantined != before

    def _differs(self, part: Part, name: str) -> bool:
        return self._confirmed.get((part.type_url, name), {}).get(part.id) != part.hash

    def _hold(self, search: _Search, group: list[Part]) -> None:
        for part in group:
            search.probing.pop(part, None)
        if len(group) == 1:
            self._culprits.update(group)
        elif group:
            middle = len(group) // 2
            search.groups += [tuple(group[:middle]), tuple(group[middle:])]

    def _probe_next(self, search: _Search) -> None:
        if search.groups and not search.probing:
            search.probing = {part: self._resource_of[part] for part in search.groups.pop()}

    def _release(self, search: _Search, part: Part) -> None:
        """Releases a part that another proxy has acknowledged, in a response sent before the NACK."""
        self._culprits.discard(part)
        remaining = (tuple(candidate for candidate in group if candidate != part) for group in search.groups)
        search.groups = [group for group in remaining if group]
        del self._resource_of[part], self._details[part]

    def _clear(self, search: _Search, part: Part) -> None:
        del search.probing[part], self._resource_of[part], self._details[part]


def _by_resource(parts: list[Part], resource_of: Mapping[Part, str]) -> list[list[Part]]:
    """Groups parts by resource, because each resource that Envoy names has a rejected part."""
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(resource_of[part], []).append(part)
    return list(groups.values())
