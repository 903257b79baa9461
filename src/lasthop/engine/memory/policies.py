"""Tracks the ports that may be plaintext while policies are unknown, and the ports that wait for a proof.

    set_unknown ──> POLICIES_UNKNOWN, by namespace ──┐
    was plaintext when it became unknown, or proven ─┴──> ABSENCE_PROVEN, by port ──> hop_tls

A mark lasts while the port is served in plaintext without interruption. A policy that names the port removes it, and so does
the removal of its last route. Marks are never saved: after a restart, a port needs a new proof or an Envoy that kept serving
it, or it is closed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key, Object
from lasthop.engine.outputs.envoy.clusters import CLUSTERS, ClusterEntry, Withheld
from lasthop.engine.plan.knowledge import Port, Proofs, Unknown, by_namespace
from lasthop.engine.plan.reasons import INTERNAL_ERROR
from lasthop.engine.plan.tls import Plaintext, Refused
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.hops.hops import hop_tls
from lasthop.engine.resolve.policies.targets import named_services
from lasthop.engine.resolve.settings import ABSENCE_PROVEN, POLICIES_UNKNOWN
from lasthop.engine.store.stages import Changes, Stages


class PolicyMemory:
    def __init__(self, stages: Stages) -> None:
        self._stages, self._graph = stages, stages.graph
        self._unknown: dict[str, Unknown] = {}
        self._plaintext: dict[Port, set[Hop]] = {}
        self._withheld: dict[Port, set[Hop]] = {}
        """Ports that are closed only because policies are unknown."""
        self._closings: dict[Port, int] = {}
        self._last_closing = 0
        self.marks: dict[Port, Hop] = {}
        """Ports that may be plaintext although policies are unknown, each with one of its hops."""

    def set_unknown(self, unknown: Iterable[Unknown]) -> None:
        """Replaces the unknown parts. Ports that are plaintext when a namespace becomes unknown stay plaintext; its other
        ports need a proof to become plaintext."""
        current = by_namespace(unknown)
        if current == self._unknown:
            return
        new = current.keys() - self._unknown.keys()
        for namespace in current.keys() | self._unknown.keys():
            POLICIES_UNKNOWN.set(self._graph, current.get(namespace), namespace)
        self._unknown = current
        if new:
            for port, hops in self._plaintext.items():
                if port not in self.marks and ("" in new or port[0].namespace in new):
                    self._mark(port, next(iter(hops)))
            # A policy may have arrived that is not settled yet.
            self._unmark_claimed(self.marks)
        self._unmark([port for port in self.marks if not self._unknown_parts(port)])

    def awaiting(self) -> Proofs:
        """Returns the ports that are closed until the source proves that no policy names them."""
        return {port: number for port, number in self._closings.items() if self._provable(port)}

    def withheld(self, port: Port) -> Collection[Hop]:
        """Returns the hops of a port that are closed only because policies are unknown."""
        return self._withheld.get(port, ())

    def proven(self, proofs: Proofs) -> None:
        """Applies proofs. A proof for an earlier request is void, because a policy may have existed in between. A proof for a
        port that a policy names by now is void, too, because the policy may be deleted before anything is settled."""
        current = [port for port, number in proofs.items() if self._closings.get(port) == number and self._provable(port)]
        for port in current:
            self._mark(port, next(iter(self._withheld[port])))
        if current:
            self._unmark_claimed(current)

    @property
    def withholds(self) -> bool:
        """Whether a port is closed because policies are unknown."""
        return bool(self._withheld)

    def adopt(self, hops: Iterable[Hop]) -> None:
        """Marks the ports that a running Envoy serves in plaintext: an earlier process proved that no policy names them, and
        Envoy has served them since."""
        for hop in hops:
            if (port := (hop.backend, hop.port)) in self._withheld:
                self._mark(port, hop)

    def applied(self, changes: Mapping[Key, Object | None]) -> None:
        if self.marks and (services := {service for obj in changes.values() for service in named_services(obj)}):
            self._unmark_claimed([port for port in self.marks if port[0] in services])

    def settled(self, outputs: Changes) -> None:
        touched: set[Port] = set()
        for key, entry in CLUSTERS.of(outputs).items():
            hop = Hop(*key)
            if not hop.protocol.policed or hop.backend.kind not in SERVICE_GROUPS:
                continue
            port = (hop.backend, hop.port)
            touched.add(port)
            _list(self._plaintext, port, hop, listed=isinstance(entry, ClusterEntry) and entry.plaintext)
            _list(self._withheld, port, hop, listed=isinstance(entry, Withheld))
        self._count_closings(touched)
        self._unmark([port for port in touched if port not in self._plaintext and port not in self._withheld])

    def _count_closings(self, ports: Iterable[Port]) -> None:
        """Numbers each closing of a port, so that a proof is valid for only one of them."""
        for port in ports:
            if port not in self._withheld:
                self._closings.pop(port, None)
            elif port not in self._closings:
                self._last_closing += 1
                self._closings[port] = self._last_closing

    def _unknown_parts(self, port: Port) -> list[Unknown]:
        return [unknown for namespace in ("", port[0].namespace) if (unknown := self._unknown.get(namespace))]

    def _provable(self, port: Port) -> bool:
        return all(unknown.provable for unknown in self._unknown_parts(port))

    def _unmark_claimed(self, ports: Iterable[Port]) -> None:
        """Removes the marks of ports that a policy names, settled or not. A policy that exists only between two checks counts,
        too."""
        self._stages.settle(0)
        self._unmark([port for port in ports if self._claimed(self.marks[port])])

    def _claimed(self, hop: Hop) -> bool:
        """Returns whether a policy names the port. A bug must not count as "no policy"."""
        tls = hop_tls.attempt(self._graph, *hop._replace(protocol=Protocol.TCP))
        if isinstance(tls, Refused):
            return tls.source is not None or tls.why.reason == INTERNAL_ERROR
        return not isinstance(tls, Plaintext)

    def _mark(self, port: Port, hop: Hop) -> None:
        self.marks[port] = hop
        ABSENCE_PROVEN.set(self._graph, True, *port)

    def _unmark(self, ports: Iterable[Port]) -> None:
        for port in ports:
            if self.marks.pop(port, None):
                ABSENCE_PROVEN.set(self._graph, None, *port)


def _list(ports: dict[Port, set[Hop]], port: Port, hop: Hop, *, listed: bool) -> None:
    if listed:
        ports.setdefault(port, set()).add(hop)
    elif (hops := ports.get(port)) is not None:
        hops.discard(hop)
        if not hops:
            del ports[port]
