"""Remembers how each Gateway verifies each port, which the graph does not know of its own past.

    the verdict on each hop ──> the weakest protocol of each Gateway and port
                                        ├──> the weakest of each port ──> HELD, an input: how it was at best
                                        └──> compared with what it was ──> edits, for the record of changes

It decides which changes are reported as a weakening, and nothing about traffic. A port is forgotten with the last route to it.

First sight: while everything is read for the first time, hops are only counted (`census`), unless an earlier process has
remembered all of its hops; a hop that appears later is an edit, and so is its end: without them `since when` would be wrong.
"""

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
    """Each Gateway once."""
    held: tuple[HopVerification, ...]
    """The last of each strength."""


class VerificationMemory:
    def __init__(self, graph: Graph, causes: Causes) -> None:
        self._graph, self._causes = graph, causes
        self._gateways: dict[Port, dict[Key, HopVerification]] = {}
        """How the Gateways verify it from which routes lead there."""
        self._before: dict[Port, dict[Key, HopVerification]] = {}
        """The same as an earlier process has left it, until it is seen again."""
        self._ports: dict[Port, PortMemory] = {}
        self._edits: list[Edit] = []
        self._started = False
        """First sights are edits."""
        self.version = 0
        """Grows whenever `ports` changes."""

    def recall(self, ports: Mapping[Port, PortMemory], *, complete: bool) -> None:
        """Takes what was remembered when this last ran, before anything is read. `complete`: these were all hops."""
        self._started = self._started or complete
        for port, known in ports.items():
            self._before[port] = {gateway: each.now for each in known.hops for gateway in each.gateways}
            for held in known.held:
                HELD.set(self._graph, held, *port, held.strength)

    def ports(self) -> dict[Port, PortMemory]:
        """Returns what is known of each port that a route leads to."""
        return dict(self._ports)

    def edits(self) -> list[Edit]:
        """Returns the changes since this was last called, those that several Gateways have in common as one."""
        found, self._edits = self._edits, []
        alike: dict[tuple[object, ...], list[Edit]] = {}
        for each in found:
            alike.setdefault(msgspec.structs.astuple(msgspec.structs.replace(each, gateways=())), []).append(each)
        folded = [edit for edits in alike.values() for edit in _folded(edits)]
        return sorted(folded, key=lambda each: (each.backend, each.port, each.gateways))

    def census(self) -> str:
        """Returns how many hops are verified how, as `3 verified, 1 plaintext`."""
        counts = Counter(_state(each) for gateways in self._gateways.values() for each in gateways.values())
        return ", ".join(f"{counts[each]} {each}" for each in STATES if counts[each]) or "no hops"

    def started(self) -> None:
        """Takes that everything has been read and compared once: what is seen for the first time from now on is new, and what
        an earlier process knew and this one has not seen is gone."""
        self._started = True
        self._causes.started()
        recalled, self._before = self._before, {}
        for port, gateways in recalled.items():
            for gateway, before in gateways.items():
                self._compare(port, gateway, before, None, None)
            if port not in self._gateways:
                self._forget(port)

    def settled(self, outputs: Changes) -> None:
        touched: dict[Port, dict[Key, HopVerification | None]] = {}
        for (gateway, backend, number), found in changed_ports(self._graph, outputs).items():
            if isinstance(found, HopVerification):
                touched.setdefault(Port(backend, number), {})[gateway] = found
            elif isinstance(found, Gone):
                touched.setdefault(Port(backend, number), {})[gateway] = None
        for port, changed in touched.items():
            self._look(port, changed)

    def _look(self, port: Port, changed: Mapping[Key, HopVerification | None]) -> None:
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
        verdicts = [(verdict, *hop, each) for each in PORTS.of(self._graph, *hop)]
        waiver, end = (before.waiver, before.basis.until) if before and before.basis else (None, None)
        causes = self._causes.of(*verdicts, (PORTS, *hop), waiver=waiver, end=end)
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
        """Names only what was edited. What the objects show counts where no edit is known, because it was made while nothing
        ran, and where it says more of an edit of the policy, the Service or the XBackend."""
        if before is None or now is None:
            return clause(causes) or ("a route leads there now" if now else "no route leads there any more")
        if causes and not _shown_by_objects(port, before, now, causes):
            return clause(causes)
        if best and before.refused and not now.refused:
            before = msgspec.structs.replace(best, refused=before.refused)
        return reason(self._graph, port.backend, before, now)

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
        self._gateways.pop(port, None)
        self._ports.pop(port, None)
        for strength in Strength:
            HELD.set(self._graph, None, *port, strength)

    def _held(self, port: Port) -> tuple[HopVerification, ...]:
        found = [HELD.peek(self._graph, *port, strength) for strength in Strength.PLAINTEXT.stronger]
        return tuple([each for each in found if each])


def _shown_by_objects(port: Port, before: HopVerification, now: HopVerification, causes: tuple[EditCause, ...]) -> bool:
    """Returns whether an edit was one of the policy, the Service or the XBackend, of a hop that connects before and after."""
    edited = {each.key for each in causes}
    return not (before.refused or now.refused) and bool(edited & {before.source, now.source, port.backend})


def _change(
    before: HopVerification | None, now: HopVerification | None, best: HopVerification | None
) -> VerificationChange | None:
    """Returns what changed of a hop; None: nothing that is recorded."""
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
        # Only the acknowledgement differs. Of what was never more than it is now that says nothing.
        return was != is_now and best is not None and best.strength > now.strength
    return True


def _identity(found: HopVerification) -> tuple[object, ...]:
    """Returns what makes a difference worth recording."""
    shown = (found.strength, found.source, found.names, found.refs, found.digest, found.waiver)
    return (*shown, bool(found.acknowledged))


def _alike(gateways: Mapping[Key, HopVerification]) -> tuple[HopsMemory, ...]:
    alike: dict[HopVerification, list[Key]] = {}
    for gateway in sorted(gateways):
        alike.setdefault(gateways[gateway], []).append(gateway)
    return tuple(HopsMemory(now, tuple(found)) for now, found in alike.items())


def _folded(edits: list[Edit]) -> Iterator[Edit]:
    gateways = sorted(gateway for each in edits for gateway in each.gateways)
    for first in range(0, len(gateways), MAX_GATEWAYS):
        yield msgspec.structs.replace(edits[0], gateways=tuple(gateways[first : first + MAX_GATEWAYS]))


def _state(found: HopVerification) -> str:
    return FAILING if found.refused else found.strength.words


STATES: Final = (*(each.words for each in reversed(Strength)), FAILING)
