"""Tracks which resources of one type a stream's client has subscribed to, has, and lacks.

The queues hold names, not values. For each name the cache's current resource is sent, so a client always receives the newest
state. Only `consider(name)` compares cache and client.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Final

import msgspec

from lasthop.edge.xds.budget import check_name, check_names
from lasthop.edge.xds.cache import Cache, wire_version
from lasthop.edge.xds.response import Response
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, Resource, Withdrawal, type_name

WILDCARD: Final = "*"
UNKNOWN: Final = ""
"""The version of a resource that was in a rejected response. The client may have any version, or none."""


Steps = Generator[None, None, None]


class PendingNack(msgspec.Struct, frozen=True):
    """Holds back resources that the client rejected. The same bytes would be rejected again, so these names wait until one of
    them changes. Then all resources are sent again, even valid ones, because the client has recorded none of them."""

    names: frozenset[str]
    until: float


class Subscription:
    def __init__(self, type_url: str, cache: Cache) -> None:
        self.type_url = type_url
        self.wildcard = False
        self.names: set[str] = set()
        self.has: dict[str, str] = {}
        """Versions by name that the client will have once it has read everything sent so far."""
        self.in_flight: dict[str, Response] = {}
        """Responses by nonce."""
        self.introducing: set[str] = set()
        """Nonces of responses in flight that contain resources new to the client."""
        self.urgent: dict[str, None] = {}
        self.updates: dict[str, None] = {}
        """Names to update, newest change last. They are sent from that end."""
        self.removals: dict[str, None] = {}
        self.additions: set[str] = set()
        """The updates that are new to the client."""
        self.requested: set[str] = set()
        """Names that the client waits for. They are answered at once, if necessary with a removal."""
        self.unanswered = False
        """The client has subscribed to everything and waits for an answer, even an empty one. Without an answer Envoy pauses
        for 15 s before it continues with the next type."""
        self.refusals: dict[str, PendingNack] = {}
        self._cache = cache

    def __repr__(self) -> str:
        queues = (("urgent", len(self.urgent)), ("updates", len(self.updates)), ("removals", len(self.removals)))
        state = ", ".join(f"{count} {kind}" for kind, count in queues if count)
        name = type_name(self.type_url)
        return f"{name}({state or 'current'}, {len(self.in_flight)} in flight, {len(self.refusals)} refused)"

    @property
    def excess(self) -> int:
        """Returns the number of names held for the client beyond the names in the cache."""
        cached, held = self._cache.count(self.type_url), max(len(self.names), len(self.has), len(self.requested))
        return held - cached if held > cached else 0

    def check(self) -> None:
        """Raises OverBudget if more names are held for the client than the Gateway can need."""
        if excess := self.excess:
            cached = self._cache.count(self.type_url)
            check_names(cached + excess, cached)

    def open(self, names: Iterable[str], versions: Mapping[str, str]) -> Generator[None, None, dict[str, Resource]]:
        """Processes the first request of a stream, and returns the resources that the client has in the current version.
        Yields after each name, like `subscribe` and `unsubscribe`, because a client may list every resource."""
        yield from self._take(names, versions)
        held = dict(self.has)
        self.wildcard = WILDCARD in self.names or (not self.names and self.type_url in (CLUSTER, LISTENER))
        self.names.discard(WILDCARD)
        self.requested = self.names - held.keys()
        self.unanswered = self.wildcard and not held
        for name in dict.fromkeys((*self._listed(), *self.has, *self.names)):
            self.consider(name)
            yield
        current = (self._cache.get(self.type_url, name) for name in held)
        return {
            resource.name: resource for resource in current if isinstance(resource, Resource) and not self._lacks(resource)
        }

    def _take(self, names: Iterable[str], versions: Mapping[str, str]) -> Steps:
        for name in names:
            check_name(name)
            self.names.add(name)
            yield
        for name, version in versions.items():
            check_name(name)
            self.has[name] = version
            yield

    def _listed(self) -> list[str]:
        """Returns all names in the cache for a wildcard client. The client may hold a withdrawn resource from a response that
        it rejected, without reporting it. An unnecessary removal is harmless."""
        names = list(self._cache.names(self.type_url)) if self.wildcard else []
        for name in names:
            if isinstance(self._cache.get(self.type_url, name), Withdrawal):
                self.has.setdefault(name, UNKNOWN)
        return names

    def subscribe(self, names: Iterable[str]) -> Steps:
        """Adds names. A repeated request is answered again, because the client may have dropped the resource."""
        for name in names:
            check_name(name)
            if name == WILDCARD:
                self.wildcard = True
                for cached_name in self._cache.names(self.type_url):
                    self.consider(cached_name)
                    yield
            else:
                self.names.add(name)
                self.requested.add(name)
                self.consider(name)
            yield

    def unsubscribe(self, names: Iterable[str]) -> Steps:
        for name in names:
            check_name(name)
            if name == WILDCARD:
                self.wildcard = False
                for held_name in [*self.has, *self.updates]:
                    if held_name not in self.names:
                        self._forget(held_name)
                    yield
            else:
                self.names.discard(name)
                self._forget(name)
                if self.wildcard:  # the wildcard may still include the name, so the client needs an answer
                    self.requested.add(name)
                    self.consider(name)
            yield

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names

    def changed(self, name: str) -> None:
        if name in self.refusals:
            self.offer_again(self.refusals[name])
        self.consider(name)

    def consider(self, name: str) -> None:
        """Puts the name into the queue where it belongs now, if any."""
        self._dequeue(name)
        change = self._cache.get(self.type_url, name)
        if isinstance(change, Resource):
            if self.wants(name) and (name in self.requested or self._lacks(change)):
                self.updates[name] = None
                if name not in self.has:
                    self.additions.add(name)
        elif name in self.has and self._is_urgent(change):
            self.urgent[name] = None
        elif name in self.has or name in self.requested:
            self.removals[name] = None

    def _lacks(self, resource: Resource) -> bool:
        return self.has.get(resource.name) != wire_version(resource) and resource.name not in self.refusals

    def promote(self, name: str) -> None:
        """Moves a queued name to the front."""
        if name in self.updates:
            del self.updates[name]
            self.updates[name] = None

    def request(self, name: str) -> None:
        """Treats a queued name as requested by the client."""
        if name in self.updates:
            self.requested.add(name)

    def newest(self, *, requested: bool) -> Iterable[Resource]:
        """Yields queued resources, newest change first; either all or only those that the client waits for."""
        for name in (name for name in self.requested if name in self.updates) if requested else reversed(self.updates):
            change = self._cache.get(self.type_url, name)
            assert isinstance(change, Resource)  # consider() queues no other change
            yield change

    def sent(self, response: Response) -> None:
        self.unanswered = False
        self.in_flight[response.nonce] = response
        if any(r.name not in self.has for r in response.resources):
            self.introducing.add(response.nonce)
        for resource in response.resources:
            self.has[resource.name] = wire_version(resource)
        for name in response.removed:
            self.has.pop(name, None)
        for name in (*(r.name for r in response.resources), *response.removed):
            self.requested.discard(name)
            self._dequeue(name)

    def answered(self, nonce: str) -> Response | None:
        """Returns the response with that nonce, which is then no longer in flight."""
        self.introducing.discard(nonce)
        return self.in_flight.pop(nonce, None)

    def refused(self, response: Response, named_in_nack: Iterable[str] | None, until: float) -> None:
        """Records a NACK. The resources that the NACK names wait; if it names none, all wait. The others are sent again at
        once. Removals count as done, because Envoy performs them even if another resource in the response is invalid."""
        lost = [r.name for r in response.resources if self.has.get(r.name) == wire_version(r)]
        self.has.update(dict.fromkeys(lost, UNKNOWN))
        waiting = lost if named_in_nack is None else [name for name in lost if name in named_in_nack]
        if all(self._is_current(r) for r in response.resources if r.name in waiting):
            self.refusals.update(dict.fromkeys(waiting, PendingNack(frozenset(waiting), until)))
        for name in lost:
            self.consider(name)

    def offer_again(self, refusal: PendingNack) -> None:
        for name in refusal.names:
            if self.refusals.get(name) is refusal:
                del self.refusals[name]
        for name in refusal.names:
            self.consider(name)

    @property
    def requested_removals(self) -> tuple[str, ...]:
        """Returns the removals that the client waits for."""
        return tuple(name for name in self.removals if name in self.requested)

    @property
    def due(self) -> bool:
        """Returns whether a response is due, even an empty one."""
        return bool(self.updates or self.removals or self.unanswered)

    @property
    def settled(self) -> bool:
        """Returns whether the client has acknowledged every current resource. Removals may still be due."""
        return self.decided and not self.refusals

    @property
    def decided(self) -> bool:
        """Returns whether the client has acknowledged or rejected every current resource."""
        return not (self.urgent or self.updates or self.in_flight or self.unanswered)

    def _is_current(self, resource: Resource) -> bool:
        change = self._cache.get(self.type_url, resource.name)
        return isinstance(change, Resource) and wire_version(change) == wire_version(resource)

    def _is_urgent(self, change: Withdrawal | None) -> bool:
        """Returns whether a removal goes first. A cluster that the cache has never had (the client was connected before a
        restart) counts as urgent, because its policy may have become invalid meanwhile."""
        return self.type_url == CLUSTER if change is None else change.urgent

    def _dequeue(self, name: str) -> None:
        self.urgent.pop(name, None)
        self.updates.pop(name, None)
        self.removals.pop(name, None)
        self.additions.discard(name)

    def _forget(self, name: str) -> None:
        self._dequeue(name)
        self.has.pop(name, None)
        self.requested.discard(name)
        self.refusals.pop(name, None)
