"""Implements one delta ADS stream as a pure state machine: requests in, responses and events out, time as an argument.

    receive(request, now) ──> events        the client's ACKs and NACKs; in steps, because a request may
                                            list everything; do not poll before the last step
    poll(now) ─────────────> response       the next response, if any; poll until None
    deadline() ────────────> time           when to poll again without an event

The order of responses (make before break, fail closed):

    1. urgent withdrawals                      held by nothing
    2. clusters                                paced, in chunks, newest change first
    3. endpoints, secrets                      an answer to a subscription is not paced: something is warming
    4. listeners, routes                       once every cluster that is new to the client is in place
    5. withdrawals of unreferenced resources        once the client has confirmed 4
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Final

import msgspec
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest

from lasthop.edge.xds.budget import MAX_UNCONFIRMED, OverBudget, check_names
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.nack import reasons
from lasthop.edge.xds.response import Response
from lasthop.edge.xds.subscription import Subscription
from lasthop.engine.outputs.envoy.resource import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, TYPES, Resource, cluster_of

PACE: Final = 0.1
"""Interval between responses of one type while one is unconfirmed. A warming cluster delays its confirmation and all later
ones by up to 15 s (docs/measurements.md#acknowledgements), so the wait is limited."""
LONGEST_PACE: Final = 1.0
"""Upper limit of the interval, which doubles with each response. A slow client must not have a long queue ahead of an urgent
edit."""
PATIENCE: Final = 10.0
"""Interval for route tables. A route table does not warm. Envoy confirms it once it is built, which takes seconds for a huge
table. A second table sent behind it would delay a tightened policy further, so it waits for the first."""
CHUNK: Final = 50
HEAVY_CHUNK: Final = 20
"""Clusters in a response. An urgent edit waits behind one chunk: 68 ms, or 60 ms with system-size bundles, instead of 1.1 s
behind a whole CA rotation (docs/measurements.md#pacing)."""
CHUNKS: Final = {CLUSTER: CHUNK, SECRET: 1}
"""Resources in a response. Envoy does not name a rejected Secret, and skips the Secrets after it, so each is sent alone."""
RETRY: Final = 10.0
"""Seconds until a rejected response without a later edit is sent again (a port in use by another process, a file that does not
exist yet)."""
LONGEST_DETAIL: Final = 64 * 1024
"""Characters of a NACK that are read. Envoy's text names the rejected clusters of a chunk, with reasons."""


class Acked(msgspec.Struct, frozen=True):
    """The client has accepted these resources, or still has them when it reconnects."""

    type_url: str
    resources: Mapping[str, Resource]
    removed: frozenset[str] = frozenset()


class Nacked(msgspec.Struct, frozen=True):
    """The client has rejected a response with these resources. It may have applied some of them, because clusters and
    listeners are applied one by one, but it has recorded neither versions nor timers."""

    type_url: str
    resources: Mapping[str, Resource]
    detail: str


SessionEvent = Acked | Nacked


class XdsSession:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._seen = cache.generation
        self._types: dict[str, Subscription] = {}
        self._nonce = 0
        self._polled_at = 0.0
        self._answered_at = self._rested = 0.0
        """The last confirmation of a route table, and the end of the pause after it. The client gets as much time for other
        work as the table took."""

    def __repr__(self) -> str:
        return f"XdsSession({', '.join(map(repr, self._types.values()))})"

    @property
    def synced(self) -> bool:
        """Returns whether the client has acknowledged every resource and every removal."""
        return (
            self._seen == self._cache.generation
            and {CLUSTER, LISTENER} <= self._types.keys()
            and all(sub.settled and not sub.removals for sub in self._types.values())
        )

    @property
    def decided(self) -> bool:
        """Returns whether the client has acknowledged or rejected everything, so that no answer is outstanding."""
        return (
            self._seen == self._cache.generation
            and {CLUSTER, LISTENER} <= self._types.keys()
            and all(sub.decided for sub in self._types.values())
        )

    def sent(self, type_url: str) -> frozenset[str] | None:
        """Returns the names that the client has, or is about to have; None for a type without a subscription."""
        sub = self._types.get(type_url)
        return frozenset(sub.has) if sub else None

    @property
    def behind(self) -> bool:
        """Returns whether more clusters wait than one response has. While the client processes one response, the next can be
        built."""
        clusters = self._types.get(CLUSTER)
        return clusters is not None and (len(clusters.updates) > CHUNK or self._seen != self._cache.generation)

    @property
    def expecting(self) -> bool:
        """Returns whether the client has not answered a response yet."""
        return any(sub.in_flight for sub in self._types.values())

    def busy(self, now: float) -> bool:
        """Returns whether the client has not answered the last route table yet, so that another one would not be sent."""
        routes = self._types.get(ROUTES)
        return routes is not None and bool(routes.in_flight) and self._paced(routes, now)

    @property
    def excess(self) -> int:
        """Returns the number of names held for the client beyond the names in the cache."""
        return sum(sub.excess for sub in self._types.values())

    def receive(self, request: DeltaDiscoveryRequest, now: float) -> list[SessionEvent]:
        """Processes a whole DeltaDiscoveryRequest at once."""
        steps = self.receiving(request, now)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                events: list[SessionEvent] = done.value
                return events

    def receiving(self, request: DeltaDiscoveryRequest, now: float) -> Generator[None, None, list[SessionEvent]]:
        """Processes a DeltaDiscoveryRequest in steps. It may be a subscription, a confirmation, or both. Raises OverBudget if
        the client requests more than the Gateway can need, and before any work if the sizes already show that."""
        type_url: str = request.type_url
        if type_url not in TYPES:
            return []
        added, versions, dropped = (
            request.resource_names_subscribe,
            request.initial_resource_versions,
            request.resource_names_unsubscribe,
        )
        check_names(max(len(added), len(versions), len(dropped)), self._cache.count(type_url))
        self._catch_up(now)

        sub = self._types.get(type_url)
        if sub is None:
            sub = Subscription(type_url, self._cache)
            has = yield from sub.open(added, versions)
            # Registered only now, because a half-open subscription would look complete. The next poll reads the changes that
            # happened meanwhile.
            self._types[type_url] = sub
            events: list[SessionEvent] = [Acked(type_url, has)] if has else []
        else:
            events = self._verdict(sub, request, now)
            yield from sub.unsubscribe(dropped)
            yield from sub.subscribe(added)
        if names_in(request):
            sub.check()
        return events

    def poll(self, now: float) -> Response | None:
        self._polled_at = now
        self._catch_up(now)
        if urgent := self._urgent(now):
            return urgent
        self._hurry_superseded()
        return (
            self._update(CLUSTER, now)
            or self._update(ENDPOINTS, now)
            or self._update(SECRET, now)
            or (self._clusters_in_place(now) and (self._update(LISTENER, now) or self._update(ROUTES, now)))
            or (self._routes_confirmed() and self._remove(now))
            or None
        )

    def _urgent(self, now: float) -> Response | None:
        subs = (sub for type_url in TYPES if (sub := self._types.get(type_url)) and sub.urgent)
        return next((self._respond(sub, now, removed=tuple(sub.urgent)) for sub in subs), None)

    def deadline(self) -> float | None:
        """Returns a time after the last poll. Everything due by then has been sent, or waits for an event."""
        times = [refusal.until for sub in self._types.values() for refusal in sub.refusals.values()]
        if self._cache.next_expiry is not None:
            times.append(self._cache.next_expiry)
        if any(sub.updates or sub.removals for sub in self._types.values()):
            times += [self._rested, *self._free_times()]
        return min((moment for moment in times if moment > self._polled_at), default=None)

    def _free_times(self) -> Iterator[float]:
        for sub in self._types.values():
            if sub.in_flight:
                yield from (response.sent_at + PACE for response in sub.in_flight.values())
                yield _free_at(sub)

    def _catch_up(self, now: float) -> None:
        """Reads the changes in the cache since the last call, and expires resources and refusals."""
        self._cache.expire(now)
        if self._seen != self._cache.generation:
            for type_url, sub in self._types.items():
                for name in self._cache.changed_since(type_url, self._seen):
                    sub.changed(name)
            self._promote_clusters_of_changed_endpoints()
            self._seen = self._cache.generation
        for sub in self._types.values():
            for refusal in [r for r in sub.refusals.values() if r.until <= now] if sub.refusals else ():
                sub.offer_again(refusal)

    def _verdict(self, sub: Subscription, request: DeltaDiscoveryRequest, now: float) -> list[SessionEvent]:
        response = sub.answered(request.response_nonce)
        if response is None:
            return []
        if sub.type_url == ROUTES and response.resources:
            self._answered_at, self._rested = now, now + min(LONGEST_PACE, max(0.0, now - response.sent_at))
        resources = {r.name: r for r in response.resources}
        if request.HasField("error_detail"):
            detail = request.error_detail.message[:LONGEST_DETAIL]
            sub.refused(response, reasons(detail, resources), now + RETRY)
            return [Nacked(sub.type_url, resources, detail)]
        return [Acked(sub.type_url, resources, frozenset(response.removed))]

    def _update(self, type_url: str, now: float) -> Response | None:
        sub = self._types.get(type_url)
        if sub is None or not sub.due:
            return None
        paced = self._paced(sub, now)
        resources = _chunk(sub, requested=paced)
        if type_url == ROUTES and self._answered_at <= now < self._rested:
            resources = tuple(resource for resource in resources if resource.name in sub.requested)
        # Removed listeners go together with new ones, because the new ones may need their addresses.
        together = type_url == LISTENER and not paced
        removed = tuple(sub.removals) if together else sub.requested_removals
        return self._respond(sub, now, resources, removed) if resources or removed or sub.unanswered else None

    def _remove(self, now: float) -> Response | None:
        clusters = self._types.get(CLUSTER)
        for type_url in (CLUSTER, ENDPOINTS, SECRET, ROUTES):
            sub = self._types.get(type_url)
            if type_url == ENDPOINTS and clusters and not clusters.settled:
                continue  # the old version of a cluster needs its endpoints until the client has the new version
            if sub and sub.removals and not self._paced(sub, now):
                return self._respond(sub, now, removed=tuple(sub.removals))
        return None

    def _respond(
        self, sub: Subscription, now: float, resources: tuple[Resource, ...] = (), removed: tuple[str, ...] = ()
    ) -> Response:
        if len(sub.in_flight) >= MAX_UNCONFIRMED:
            raise OverBudget(f"{MAX_UNCONFIRMED} responses of one type are not confirmed")
        self._nonce += 1
        response = Response(sub.type_url, str(self._nonce), self._cache.generation, now, resources, removed)
        sub.sent(response)
        return response

    def _paced(self, sub: Subscription, now: float) -> bool:
        if not sub.in_flight:
            return False
        # Setting the clock back does not stop the stream.
        return max(response.sent_at for response in sub.in_flight.values()) <= now < _free_at(sub)

    def _clusters_in_place(self, now: float) -> bool:
        """Returns whether every cluster that is new to the client is confirmed, including its endpoints. Names are stable, so
        only new clusters can be missing behind a route. At a cold start this holds listeners and routes until the last
        chunk."""
        clusters = self._types.get(CLUSTER)
        return clusters is None or not (
            clusters.additions or any(_recent(clusters.in_flight[nonce].sent_at, now) for nonce in clusters.introducing)
        )

    def _routes_confirmed(self) -> bool:
        """Returns whether the client has all listeners and route tables. A rejected table counts as unconfirmed, because the
        old one still serves and may name removed clusters. A client that reconnects counts as unconfirmed until it has listed
        its listeners and tables."""
        listeners, routes = self._types.get(LISTENER), self._types.get(ROUTES)
        return (
            listeners is not None and listeners.settled and (routes.settled if routes else not self._cache.holds_any(ROUTES))
        )

    def _hurry_superseded(self) -> None:
        """Sends a cluster before its turn if the client waits for endpoints of a superseded version. A removal of these
        endpoints would put that version into service empty (`no healthy upstream`, seen with Envoy 1.40 after edits in quick
        succession). So the current version goes first, paced or not."""
        clusters, endpoints = self._types.get(CLUSTER), self._types.get(ENDPOINTS)
        if clusters and endpoints:
            for name in endpoints.requested & endpoints.removals.keys():
                clusters.request(cluster_of(name))

    def _promote_clusters_of_changed_endpoints(self) -> None:
        """Moves clusters forward whose endpoints changed. Endpoints are named after their cluster's version, so an edit of
        endpoints cannot reach the client before that version."""
        clusters, endpoints = self._types.get(CLUSTER), self._types.get(ENDPOINTS)
        if clusters and endpoints:
            for name in self._cache.changed_since(ENDPOINTS, self._seen):
                if not endpoints.wants(name):
                    clusters.promote(cluster_of(name))


def names_in(request: DeltaDiscoveryRequest) -> bool:
    """Returns whether a request contains names. Most requests are only confirmations. A name that a wildcard client drops
    needs an answer."""
    return bool(request.resource_names_subscribe or request.initial_resource_versions or request.resource_names_unsubscribe)


def _recent(moment: float, now: float) -> bool:
    """Returns whether `moment` is within the pace. It computes the same sum as `deadline`, because rounding would otherwise
    make them disagree. Setting the clock back does not stop the stream."""
    return moment <= now < moment + PACE


def _free_at(sub: Subscription) -> float:
    """Returns the time at which the next response may be sent although earlier ones are unacknowledged."""
    pause = PATIENCE if sub.type_url == ROUTES else min(LONGEST_PACE, PACE * 2.0 ** (len(sub.in_flight) - 1))
    last: float = max(response.sent_at for response in sub.in_flight.values())
    return last + pause


def _chunk(sub: Subscription, *, requested: bool) -> tuple[Resource, ...]:
    """Returns queued resources in the order of their changes; for some types only the newest few."""
    chunk: list[Resource] = []
    heavy = False
    for resource in sub.newest(requested=requested):
        heavy = heavy or resource.heavy
        if len(chunk) >= (HEAVY_CHUNK if heavy else CHUNKS.get(sub.type_url, len(chunk) + 1)):
            break
        chunk.append(resource)
    return tuple(reversed(chunk))
