"""Stages: they keep queries up to date for every member of a domain, in order.

An `Indexer` lists entries for its members in indexes. An `Output` has a value for each member, and `Stages.settle()` returns
the changed ones. Later stages can read an index, and use its keys as their domain."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, overload

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.store.graph import Graph, Query, query
from lasthop.engine.store.node import Crash, NodeId, owner_of
from lasthop.engine.store.sources import AnyIndex, Entry, Index
from lasthop.engine.store.turns import Member, Turns

T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")

Domain = str | AnyIndex
"""A kind of objects, or an index whose keys are the members."""


class Gone:
    """The value of an output whose member has left the domain."""

    def __repr__(self) -> str:
        return "GONE"


GONE: Final = Gone()
UNCHANGED: Final = object()


class Indexer(msgspec.Struct, frozen=True):
    """Fills indexes from the members of domains."""

    name: str
    domains: tuple[Domain, ...]
    entries: Query[*Member, tuple[Entry, ...]]
    keep_on_crash: bool = False
    """A member that crashes keeps its earlier entries. For indexes whose missing entries would open something: the claims of
    policies, the owners of hostnames."""
    deferrable: bool = False
    """In a limited `settle()`, its members take turns like those of outputs: indexing thousands of members of one change would
    delay all other changes. A member is indexed before an output of the same domain reports it."""
    only_where: Gate | None = None
    """Members for which the gate is closed list nothing and have no node."""


class Gate(msgspec.Struct, frozen=True):
    """Decides by another query of the same member whether the member may list entries."""

    query: Query[*Member, Any]
    opens: Callable[[Any], bool]


@overload
def indexer(
    *kinds: str, keep_on_crash: bool = False, deferrable: bool = False
) -> Callable[[Callable[[Graph, Key], Iterable[Entry]]], Indexer]: ...
@overload
def indexer(
    index: Index[*Ts, Any], /, *, keep_on_crash: bool = False, deferrable: bool = False, only_where: Gate | None = None
) -> Callable[[Callable[[Graph, *Ts], Iterable[Entry]]], Indexer]: ...
def indexer(
    *domains: Domain, keep_on_crash: bool = False, deferrable: bool = False, only_where: Gate | None = None
) -> Callable[[Callable[..., Iterable[Entry]]], Indexer]:
    """Turns a function `f(g, *member)` that yields the entries of a member into an indexer."""

    def stage(fn: Callable[..., Iterable[Entry]]) -> Indexer:
        entries = query(functools.wraps(fn)(lambda g, *member: _distinct(fn(g, *member))))
        return Indexer(fn.__name__, domains, entries, keep_on_crash, deferrable, only_where)

    return stage


def _distinct(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Keeps the last entry for each index and key. Most members list at most one, so a tuple suffices."""
    all_entries = tuple(entries)
    return all_entries if len(all_entries) < 2 else tuple(dict(all_entries).items())


class Output(msgspec.Struct, Generic[*Ts, T_co], frozen=True):
    """One value for each member of a domain, reported by `settle()` when it changes."""

    name: str
    domain: Domain
    value: Query[*Ts, T_co]
    is_referenced: bool = False
    """Outputs that set `has_references` refer to this one's members."""
    has_references: bool = False
    """In a limited `settle()`, it holds back changes of owners whose new members of a referenced output are not
    reported yet."""

    reported_with: str = ""
    """The name of an output of the same domain that always reports the same members, even with limits. A cluster refers to its
    endpoints: sent alone, it would refer to endpoints that Envoy does not have."""
    part: Callable[[Any], Any] = lambda value: value
    """Extracts the reported part of the query's value."""

    @property
    def domains(self) -> tuple[Domain, ...]:
        return (self.domain,)

    def of(self, changes: Changes) -> Mapping[tuple[*Ts], T_co | Gone | None]:
        """Returns the changed values; None for one whose query crashed."""
        return changes.get(self.name, {})


AnyOutput = Output[*Member, Any]
Stage = Indexer | AnyOutput
Changes = Mapping[str, Mapping[Any, Any]]
"""{output name: {member: value or GONE}}."""

Hold = Mapping[str, Collection[object]]
"""Members to hold back, by output: those whose key begins with one of these values."""
NO_HOLD: Final[Hold] = MappingProxyType({})


class _State:
    """The state of one stage."""

    __slots__ = ("domains", "entries", "gate", "query", "revisions", "stage", "turns")

    def __init__(self, stage: Stage, domains: tuple[set[Member], ...]) -> None:
        self.stage = stage
        self.gate = stage.only_where if isinstance(stage, Indexer) else None
        self.query = stage.entries if isinstance(stage, Indexer) else stage.value
        self.domains = domains
        """The members of each domain, shared with other stages."""
        self.entries: dict[Member, tuple[Entry, ...]] = {}
        self.revisions: dict[Member, int] = {}
        """The revision of each member's value that was last listed or reported."""
        self.turns = Turns(self.revisions)

    def __contains__(self, member: Member) -> bool:
        for members in self.domains:  # noqa: SIM110 - called for every member of every stage at start-up
            if member in members:
                return True
        return False


class Stages:
    def __init__(self, graph: Graph, stages: Iterable[Stage]) -> None:
        self.graph = graph
        self.journal: dict[NodeId, dict[NodeId, None]] | None = None
        """Members whose entries have changed since the journal was last reset, by key of an index. Each is listed as its query
        and as the index key that it is a member of. None: no journal is kept."""
        self._members: dict[Domain, set[Member]] = defaultdict(set)
        self._states = [_State(stage, tuple(self._members[domain] for domain in stage.domains)) for stage in stages]
        self._by_name = {state.stage.name: state for state in self._states}
        self._at_once = [state for state in self._states if isinstance(state.stage, Indexer) and not state.stage.deferrable]
        self._reported_with: dict[str, list[_State]] = {name: [] for name in self._by_name}
        for state in self._states:
            if isinstance(state.stage, Output) and state.stage.reported_with:
                self._reported_with[state.stage.name].append(self._by_name[state.stage.reported_with])
                self._reported_with[state.stage.reported_with].append(state)
        self._domains: dict[Domain, list[_State]] = {}
        self._deferrable: dict[Domain, list[tuple[_State, Indexer]]] = {}
        for state in self._states:
            for domain in state.stage.domains:
                self._domains.setdefault(domain, []).append(state)
                if isinstance(state.stage, Indexer) and state.stage.deferrable:
                    self._deferrable.setdefault(domain, []).append((state, state.stage))

    def enter(self, domain: Domain, member: Member, owner: str | None = None) -> None:
        owner = owner_of(member) if owner is None else owner
        self._members[domain].add(member)
        for state in self._domains.get(domain, ()):
            state.turns.mark(member, owner)

    def leave(self, domain: Domain, member: Member, owner: str | None = None) -> None:
        owner = owner_of(member) if owner is None else owner
        self._members[domain].discard(member)
        for state in self._domains.get(domain, ()):
            state.turns.mark(member, owner)

    def settle(
        self,
        limit: int | None = None,
        only: Collection[str] | None = None,
        enough: Callable[[], bool] = lambda: False,
        hold: Hold = NO_HOLD,
        delayed_owners: frozenset[str] = frozenset(),
    ) -> Changes:
        """Brings everything up to date and returns the changed outputs.

        `limit` caps the members per output, taken by turns; once `enough()` is true, one member per output. Call again while
        `unsettled`. `only` restricts the outputs. `hold` delays members, and `delayed_owners` delays the changes of owners,
        except in referenced outputs and the outputs that are reported with them."""
        changes: dict[str, dict[Member, object]] = {}
        for _ in range(len(self._states) + 1):
            if not self.unsettled:
                return changes
            introducing: frozenset[str] = frozenset()
            reported = Counter[str]()
            for state in self._states:
                if not state.turns.dirty:
                    continue  # the usual case
                stage = state.stage
                if isinstance(stage, Indexer):
                    for member in self._taken(state, limit if stage.deferrable else None, enough):
                        self._index(state, stage, member)
                    continue
                if only is not None and stage.name not in only:
                    continue
                never_delayed = stage.is_referenced or bool(self._reported_with[stage.name])
                delayed = (
                    frozenset() if never_delayed else introducing | delayed_owners if stage.has_references else delayed_owners
                )
                # Members reported with others count, but leave room for members that change alone.
                remaining = None if limit is None else min(limit, max(limit - reported[stage.name], limit // 4, 1))
                for member in self._taken(state, remaining, enough, hold, delayed):
                    for listing, indexer in self._deferrable.get(stage.domain, ()):
                        if listing.turns.drop(member):
                            self._index(listing, indexer, member)
                    self._report(state, member, changes)
                    for partner in self._reported_with[stage.name]:
                        if (only is None or partner.stage.name in only) and partner.turns.drop(member):
                            self._report(partner, member, changes)
                            reported[partner.stage.name] += 1
                if stage.is_referenced:
                    introducing |= state.turns.owners_of_new()
            limited = limit is not None or only is not None
            if limited and not any(state.turns.dirty for state in self._at_once):
                return changes
        raise RuntimeError("stages feed each other in a circle")

    def _taken(
        self,
        state: _State,
        limit: int | None,
        enough: Callable[[], bool],
        hold: Hold = NO_HOLD,
        delayed_owners: Collection[str] = (),
    ) -> Iterable[Member]:
        if limit is None:
            return state.turns.take_all()
        return state.turns.take(limit, enough, hold.get(state.stage.name, ()), delayed_owners)

    @property
    def unsettled(self) -> bool:
        for state in self._states:  # noqa: SIM110 - called several times per edit
            if state.turns.dirty:
                return True
        return False

    def unsettled_but(self, hold: Hold) -> bool:
        """Returns whether members other than the held ones are unsettled."""
        return any(member[0] not in hold.get(state.stage.name, ()) for state in self._states for member in state.turns.dirty)

    def waiting(self, *outputs: AnyOutput) -> bool:
        """Returns whether members of these outputs are unsettled."""
        return any(self._by_name[output.name].turns.dirty for output in outputs)

    def is_member(self, output: Output[*Ts, object], member: tuple[*Ts]) -> bool:
        return member in self._members[output.domain]

    def members(self, output: Output[*Ts, T_co]) -> Mapping[tuple[*Ts], T_co | Crash]:
        nodes, members = self.graph.nodes, self._members[output.domain]
        pairs = ((member, nodes.get((output.value, *member))) for member in members)
        return {
            member: node.value if isinstance(node.value, Crash) else output.part(node.value) for member, node in pairs if node
        }

    # --- members -----------------------------------------------------------------------------------------------------

    def _changed(self, state: _State, member: Member) -> object:
        """Returns the value of a member, UNCHANGED if it was reported before, GONE if the member has left."""
        graph, id, gate, turns = self.graph, (state.query, *member), state.gate, state.turns
        if member not in state:
            graph.unpin(id, turns)
            if gate:
                graph.unpin((gate.query, *member), turns)
            return UNCHANGED if state.revisions.pop(member, None) is None else GONE
        closed = gate is not None and self._closed(state, gate, member)
        if closed:
            graph.unpin(id, turns)
        node = graph.pin((gate.query, *member) if gate and closed else id, turns)
        if state.revisions.get(member) == node.changed:
            return UNCHANGED
        state.revisions[member] = node.changed
        return () if closed else node.value

    def _closed(self, state: _State, gate: Gate, member: Member) -> bool:
        value = self.graph.pin((gate.query, *member), state.turns).value
        return not isinstance(value, Crash) and not gate.opens(value)

    def _report(self, state: _State, member: Member, changes: dict[str, dict[Member, object]]) -> None:
        value = self._changed(state, member)
        if value is not UNCHANGED:
            if isinstance(state.stage, Output) and not isinstance(value, Crash | Gone):
                value = state.stage.part(value)
            changes.setdefault(state.stage.name, {})[member] = None if isinstance(value, Crash) else value

    def _index(self, state: _State, stage: Indexer, member: Member) -> None:
        value = self._changed(state, member)
        if value is UNCHANGED or (isinstance(value, Crash) and stage.keep_on_crash):
            return
        self._list(state, member, value if isinstance(value, tuple) else ())
        node = self.graph.nodes.get((state.query, *member))
        if node and not node.deps and not isinstance(value, Crash):
            # The query has no reads, so its value cannot change until the member leaves.
            self.graph.unpin(node.id, state.turns)

    def _list(self, state: _State, member: Member, new: tuple[Entry, ...]) -> None:
        """Replaces the entries of a member."""
        old = state.entries.pop(member, ())
        if not old and not new:
            return
        touch, listed, owner = self.graph.touch, self.graph.listed, owner_of(member)
        if new:
            state.entries[member] = new
        for id in dict(old).keys() - dict(new).keys() if old else ():
            index, key = id[0], id[1:]
            del listed[id][member]
            self._note(id, state, member)
            touch(id, owner)
            touch((index.sizes, *key), owner)
            for summary in index.summaries:
                touch((summary, *key), owner)
            if not listed[id]:
                del listed[id]
                self.leave(index, key, owner)
        for id, value in new:
            index, key = id[0], id[1:]
            members = listed.setdefault(id, {})
            existed = member in members
            if existed and members[member] == value:
                continue
            members[member] = value
            self._note(id, state, member)
            touch(id, owner)
            for summary in index.summaries:
                touch((summary, *key), owner)
            if not existed:
                touch((index.sizes, *key), owner)
                if len(members) == 1:
                    self.enter(index, key, owner)

    def _note(self, id: NodeId, state: _State, member: Member) -> None:
        if self.journal is not None:
            members = self.journal.setdefault(id, {})
            members[(state.query, *member)] = None
            members.update({(domain, *member): None for domain in state.stage.domains if not isinstance(domain, str)})
