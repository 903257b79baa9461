"""Remembers how each Gateway verified each port, because the graph knows only the present.

    the verdict on each hop ──> the weakest protocol of each Gateway and port
                                        ├──> the weakest of each port ──> HELD, an input: its best state
                                        └──> compared with its past ──> edits, for the record of changes

It decides only which changes are reported as a weakening, and never affects traffic. The removal of the last route to a port
removes the memory of that port. At start-up, hops are only counted (`census`), unless an earlier process has saved all of its
hops. A hop that appears or disappears later is an edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.memory.causes import Causes, EditCause, clause
from lasthop.engine.memory.record import MAX_GATEWAYS, Edit
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import FAILING, HopVerification, weakest
from lasthop.engine.plan.verification_change import SAME, ChangeKind, VerificationChange, compare
from lasthop.engine.resolve.backends.reach import PORTS
from lasthop.engine.resolve.hops.verdict import changed_ports, verdict
from lasthop.engine.resolve.hops.weakening import reason
from lasthop.engine.resolve.settings import HELD
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.stages import Changes, Gone


class Port(NamedTuple):
    backend: Key
    number: int


class HopsMemory(msgspec.Struct, frozen=True, array_like=True):
    now: HopVerification
    gateways: tuple[Key, ...]


class PortMemory(msgspec.Struct, frozen=True, array_like=True):
    hops: tuple[HopsMemory, ...]
    """The current state; each Gateway occurs once."""
    held: tuple[HopVerification, ...]
    """The last state at each strength."""


class VerificationMemory:
    def __init__(self, graph: Graph, causes: Causes) -> None:
        self._graph, self._causes = graph, causes
        self._gateways: dict[Port, dict[Key, HopVerification]] = {}
        """The current verification by port and Gateway."""
        self._before: dict[Port, dict[Key, HopVerification]] = {}
        """The state of an earlier process, until this one sees the hop."""
        self._ports: dict[Port, PortMemory] = {}
        self._edits: list[Edit] = []
        self._started = False
        """Whether a hop that appears is an edit."""
        self.version = 0
        """Grows whenever `ports` changes."""

    def recall(self, ports: Mapping[Port, PortMemory], *, complete: bool) -> None:
        """Restores the saved memory before any object is read. With `complete` it contains all hops."""
        self._started = self._started or complete
        for port, memory in ports.items():
            self._before[port] = {gateway: hops.now for hops in memory.hops for gateway in hops.gateways}
            for held in memory.held:
                HELD.set(self._graph, held, *port, held.strength)

    def ports(self) -> dict[Port, PortMemory]:
        """Returns the memory of each port that a route leads to."""
        return dict(self._ports)

    def edits(self) -> list[Edit]:
        """Returns the changes since the last call. Equal changes of several Gateways become one."""
        new, self._edits = self._edits, []
        alike: dict[tuple[object, ...], list[Edit]] = {}
        for edit in new:
            alike.setdefault(msgspec.structs.astuple(msgspec.structs.replace(edit, gateways=())), []).append(edit)
        folded = [edit for edits in alike.values() for edit in _folded(edits)]
        return sorted(folded, key=lambda edit: (edit.backend, edit.port, edit.gateways))

    def census(self) -> str:
        """Counts hops by verification: `3 verified, 1 plaintext`."""
        counts = Counter(_state(hop) for gateways in self._gateways.values() for hop in gateways.values())
        return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no hops"

    def started(self) -> None:
        """Ends start-up, once everything has been read and compared. From now on, hops that appear are new, and recalled hops
        that did not appear are gone."""
        self._started = True
        recalled, self._before = self._before, {}
        for port, gateways in recalled.items():
            for gateway, before in gateways.items():
                self._compare(port, gateway, before, None, None)
            if port not in self._gateways:
                self._forget(port)
        self._causes.started()

    def settled(self, outputs: Changes) -> None:
        touched: dict[Port, dict[Key, HopVerification | None]] = {}
        for (gateway, backend, number), state in changed_ports(self._graph, outputs).items():
            if isinstance(state, HopVerification):
                touched.setdefault(Port(backend, number), {})[gateway] = state
            elif isinstance(state, Gone):
                touched.setdefault(Port(backend, number), {})[gateway] = None
        for port, changed in touched.items():
            self._update(port, changed)

    def _update(self, port: Port, changed: Mapping[Key, HopVerification | None]) -> None:
        gateways, recalled = self._gateways.setdefault(port, {}), self._before.get(port, {})
        before = {gateway: gateways.get(gateway) or recalled.pop(gateway, None) for gateway in changed}
        best = next(iter(self._held(port)), None)
        for gateway, now in changed.items():
            if now is None:
                gateways.pop(gateway, None)
            else:
                gateways[gateway] = now
            self.version += before[gateway] != now
        if gateways:
            self._remember(port, gateways.values())
            self._ports[port] = PortMemory(_alike(gateways), self._held(port))
        else:
            self._forget(port)
        for gateway, now in changed.items():
            self._compare(port, gateway, before[gateway], now, best)

    def _compare(
        self,
        port: Port,
        gateway: Key,
        before: HopVerification | None,
        now: HopVerification | None,
        best: HopVerification | None,
    ) -> None:
        change = _change(before, now, best)
        if change is None or (before is None and not self._started):
            return
        hop = (gateway, *port)
        verdicts = [(verdict, *hop, protocol) for protocol in PORTS.of(self._graph, *hop)]
        waiver, end = (before.waiver, before.basis.until) if before and before.basis else (None, None)
        earlier = filter(None, (gateway, port.backend, before.source, before.waiver)) if before else ()
        causes = self._causes.of(*verdicts, (PORTS, *hop), earlier=earlier, waiver=waiver, end=end)
        because = self._because(port, before, now, best, causes)
        self._edits.append(Edit(*port, before, now, because, change, (gateway,), causes))

    def _because(
        self,
        port: Port,
        before: HopVerification | None,
        now: HopVerification | None,
        best: HopVerification | None,
        causes: tuple[EditCause, ...],
    ) -> str:
        """Describes the cause by the edited objects. Describes their present content instead if no edit is known because it
        is older than this process, or if the policy, the Service or the XBackend itself was edited."""
        if before is None or now is None:
            return clause(causes) or ("a route leads to it now" if now else "no route leads to it any more")
        if causes and not _shown_by_objects(port, before, now, causes):
            return clause(causes)
        if best and before.refused and not now.refused:
            before = msgspec.structs.replace(best, refused=before.refused)
        return reason(self._graph, port.backend, before, now)

    def _remember(self, port: Port, states: Collection[HopVerification]) -> None:
        """Keeps the weakest connected state of each strength. A requirement that fails closed is kept only where no state
        has connected, because a later edit may open the hop."""
        for strength in {state.strength for state in states} - {Strength.PLAINTEXT}:
            held = weakest(state for state in states if state.strength is strength)
            if held.refused and HELD.peek(self._graph, *port, strength):
                continue
            if held.refused or held.acknowledged:
                held = msgspec.structs.replace(held, refused="", acknowledged="")
            self.version += HELD.set(self._graph, held, *port, strength)

    def _forget(self, port: Port) -> None:
        self._gateways.pop(port, None)
        self._ports.pop(port, None)
        for strength in Strength:
            HELD.set(self._graph, None, *port, strength)

    def _held(self, port: Port) -> tuple[HopVerification, ...]:
        held = [HELD.peek(self._graph, *port, strength) for strength in Strength.PLAINTEXT.stronger]
        return tuple([state for state in held if state])


def _shown_by_objects(port: Port, before: HopVerification, now: HopVerification, causes: tuple[EditCause, ...]) -> bool:
    """Returns whether the hop connects before and after, and its policy, Service or XBackend was edited."""
    edited = {cause.key for cause in causes}
    return not (before.refused or now.refused) and bool(edited & {before.source, now.source, port.backend})


def _change(
    before: HopVerification | None, now: HopVerification | None, best: HopVerification | None
) -> VerificationChange | None:
    """Returns the change of a hop; None if it is not recorded."""
    if before is None or now is None:
        lower = now and not now.refused and best and best.strength > now.strength
        return VerificationChange(ChangeKind.WEAKER) if lower else SAME
    if before.refused and now.refused:
        return None
    change = compare(before, now, best)
    return change if change.differs or _otherwise_different(before, now, best) else None


def _otherwise_different(before: HopVerification, now: HopVerification, best: HopVerification | None) -> bool:
    was, is_now = _identity(before), _identity(now)
    if was[:-1] == is_now[:-1]:
        # Only the acknowledgement differs, which matters only after a weakening.
        return was != is_now and best is not None and best.strength > now.strength
    return True


def _identity(state: HopVerification) -> tuple[object, ...]:
    """Returns the fields whose changes are recorded."""
    fields = (state.strength, state.source, state.names, state.refs, state.digest, state.waiver)
    return (*fields, bool(state.acknowledged))


def _alike(gateways: Mapping[Key, HopVerification]) -> tuple[HopsMemory, ...]:
    alike: dict[HopVerification, list[Key]] = {}
    for gateway in sorted(gateways):
        alike.setdefault(gateways[gateway], []).append(gateway)
    return tuple(HopsMemory(now, tuple(keys)) for now, keys in alike.items())


def _folded(edits: list[Edit]) -> Iterator[Edit]:
    gateways = sorted(gateway for edit in edits for gateway in edit.gateways)
    for first in range(0, len(gateways), MAX_GATEWAYS):
        yield msgspec.structs.replace(edits[0], gateways=tuple(gateways[first : first + MAX_GATEWAYS]))


def _state(hop: HopVerification) -> str:
    return FAILING if hop.refused else hop.strength.words


STATES: Final = (*(strength.words for strength in reversed(Strength)), FAILING)
