"""Remembers how each backend was verified, the one thing that the graph knows of its own past.

    the verdict on each hop ──> the weakest of each port ──┬──> HELD, an input: how it was at best
                                                           └──> edits, for the record of changes

It decides which changes are reported as a weakening, and nothing about traffic. It ends with the last route to the port.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.changes import MAX_GATEWAYS, Edit
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import HopVerification, weakest
from lasthop.engine.plan.verification_change import compare
from lasthop.engine.resolve.hops.verdict import changed_ports
from lasthop.engine.resolve.hops.weakening import reason
from lasthop.engine.resolve.settings import HELD
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.stages import Changes, Gone


class Port(NamedTuple):
    """Of a Service or an XBackend."""

    backend: Key
    number: int


class PortMemory(msgspec.Struct, frozen=True, array_like=True):
    """What is remembered of a port."""

    now: HopVerification
    held: tuple[HopVerification, ...]
    """The last of each strength."""


class VerificationMemory:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._gateways: dict[Port, dict[Key, HopVerification]] = {}
        """How the Gateways verify it from which routes lead there."""
        self._now: dict[Port, HopVerification] = {}
        self._ports: dict[Port, PortMemory] = {}
        self._edits: list[Edit] = []
        self.version = 0
        """Grows whenever `ports` changes."""

    def recall(self, ports: Mapping[Port, PortMemory]) -> None:
        """Takes what was remembered when this last ran, before anything is read."""
        for port, known in ports.items():
            self._now.setdefault(port, known.now)
            for held in known.held:
                HELD.set(self._graph, held, *port, held.strength)

    def ports(self) -> dict[Port, PortMemory]:
        """Returns what is known of each port that a route leads to."""
        return dict(self._ports)

    def edits(self) -> list[Edit]:
        """Returns the changes since this was last called."""
        found, self._edits = self._edits, []
        return found

    def settled(self, outputs: Changes) -> None:
        """Looks at what has been computed."""
        touched: dict[Port, None] = {}
        for (gateway, backend, number), found in changed_ports(self._graph, outputs).items():
            port = Port(backend, number)
            gateways = self._gateways.setdefault(port, {})
            if isinstance(found, HopVerification):
                gateways[gateway] = found
            elif isinstance(found, Gone):
                gateways.pop(gateway, None)
            touched[port] = None
        for port in touched:
            if self._gateways[port]:
                self._look(port)
            else:
                self._forget(port)

    def _look(self, port: Port) -> None:
        found = self._gateways[port].values()
        now, before = weakest(found), self._now.get(port)
        best = self._best(port) if before is not None else None
        self._remember(port, found)
        self._now[port] = now
        self._ports[port] = PortMemory(now, self._held(port))
        self.version += before != now
        if before is None or (before.refused and now.refused):
            return
        change = compare(before, now, best)
        if before.identity == now.identity and not change.differs:
            return
        if not change.differs and _acknowledged_alone(before, now) and (best is None or best.strength <= now.strength):
            return  # it was never more
        was = before
        if best and before.refused and not now.refused:
            was = msgspec.structs.replace(best, refused=before.refused)
        gateways = sorted(key for key, each in self._gateways[port].items() if bool(each.refused) == bool(now.refused))
        because = reason(self._graph, port.backend, was, now)
        self._edits.append(Edit(*port, before, now, because, change, tuple(gateways[:MAX_GATEWAYS])))

    def _remember(self, port: Port, found: Collection[HopVerification]) -> None:
        """Keeps of each strength the weakest that connects now. What is only asked for counts where none has connected, and
        replaces none that has: whatever closes the hop may end in a later edit."""
        for strength in {each.strength for each in found} - {Strength.PLAINTEXT}:
            held = weakest(each for each in found if each.strength is strength)
            if held.refused and HELD.peek(self._graph, *port, strength):
                continue
            if held.refused or held.acknowledged:
                held = msgspec.structs.replace(held, refused="", acknowledged="")
            self.version += HELD.set(self._graph, held, *port, strength)

    def _forget(self, port: Port) -> None:
        del self._gateways[port]
        self._ports.pop(port, None)
        self.version += self._now.pop(port, None) is not None
        for strength in Strength:
            HELD.set(self._graph, None, *port, strength)

    def _held(self, port: Port) -> tuple[HopVerification, ...]:
        found = [HELD.peek(self._graph, *port, strength) for strength in Strength.PLAINTEXT.stronger]
        return tuple([each for each in found if each])

    def _best(self, port: Port) -> HopVerification | None:
        return next(iter(self._held(port)), None)


def _acknowledged_alone(before: HopVerification, now: HopVerification) -> bool:
    return before.identity[:-1] == now.identity[:-1]
