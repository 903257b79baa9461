"""Remembers which ports are plaintext while every policy is known: once some cannot be read, no port joins them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lasthop.api.kinds import SERVICE_GROUPS
from lasthop.api.meta import Key, Object
from lasthop.outputs.envoy.clusters import CLUSTERS, ClusterEntry
from lasthop.plan.reasons import INTERNAL_ERROR
from lasthop.plan.tls import Plaintext, Refused
from lasthop.plan.upstream import Hop, Protocol
from lasthop.resolve.hops import hop_tls
from lasthop.resolve.policies.targets import named_services
from lasthop.resolve.settings import POLICIES_UNKNOWN, SERVED_PLAINTEXT
from lasthop.store.stages import Changes, Stages

Port = tuple[Key, int]
"""Of a Service."""


class PolicyMemory:
    def __init__(self, stages: Stages) -> None:
        self._stages, self._graph = stages, stages.graph
        self._plaintext: set[Hop] = set()
        self.marks: dict[Port, Hop] = {}
        """Ports that stay plaintext while not every policy is known, each with one of its hops."""

    def set_known(self, known: bool) -> None:
        """Freezes what is plaintext now while not every policy is known: nothing joins it until all are known again, and what
        a policy has named in the meantime leaves it, because that policy may be the one that cannot be read next."""
        if not POLICIES_UNKNOWN.set(self._graph, None if known else True):
            return
        if known:
            self._unmark(tuple(self.marks))
            return
        for hop in self._plaintext:
            if hop.backend.kind in SERVICE_GROUPS and (hop.backend, hop.port) not in self.marks:
                self.marks[hop.backend, hop.port] = hop
                SERVED_PLAINTEXT.set(self._graph, True, hop.backend, hop.port)
        self._unmark_claimed(self.marks)

    def applied(self, changes: Mapping[Key, Object | None]) -> None:
        if self.marks and (named := {service for obj in changes.values() for service in named_services(obj)}):
            self._unmark_claimed([port for port in self.marks if port[0] in named])

    def settled(self, outputs: Changes) -> None:
        for key, entry in CLUSTERS.of(outputs).items():
            hop = Hop(*key)
            if isinstance(entry, ClusterEntry) and entry.plaintext and hop.protocol.policed:
                self._plaintext.add(hop)
                continue
            self._plaintext.discard(hop)
            if (hop.backend, hop.port) in self.marks and self._claimed(hop):
                self._unmark([(hop.backend, hop.port)])

    def _unmark_claimed(self, ports: Iterable[Port]) -> None:
        """Looks at what has come in, settled or not: a policy that comes and goes between two looks was there too."""
        self._stages.settle(0)
        self._unmark([port for port in ports if self._claimed(self.marks[port])])

    def _claimed(self, hop: Hop) -> bool:
        """Returns whether a policy names the port. A bug must not count as "no policy"."""
        tls = hop_tls.attempt(self._graph, *hop._replace(protocol=Protocol.TCP))
        if isinstance(tls, Refused):
            return tls.source is not None or tls.why.reason == INTERNAL_ERROR
        return not isinstance(tls, Plaintext)

    def _unmark(self, ports: Iterable[Port]) -> None:
        for port in ports:
            del self.marks[port]
            SERVED_PLAINTEXT.set(self._graph, None, *port)
