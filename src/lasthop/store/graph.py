"""The incremental query graph: every answer remembers what it read, and is worked out again only if that changed.

    inputs ──read by──> queries ──read by──> stages
    (objects, indexes,   (pure functions      (one node for each member of a domain: an index entry, a status,
     deadlines)           f(g, *key) that      an xDS resource)
                          are marked @query)

A changed input marks its readers, transitively, as perhaps out of date; `settle()` then walks the stages in order. A query is
recomputed only if something it read really changed, and a recomputed value that equals the old one stops the wave.
An input that is missing is an input with the value None, so "the ConfigMap appears later" needs no special case.

A stage is either an `Indexer`, which lists what it finds of its members in indexes, or an `Output`, whose changed values
`settle()` returns. What an index lists under a key is itself an input for later stages, and its keys can be their domain.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast, overload

import msgspec

from lasthop.api.meta import Key

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")

NodeId = tuple[Any, ...]
"""(query, index, or what else there is to read; *key)."""
Entry = tuple[NodeId, Any]
"""(index, *key), and a value to list there."""


class Gone:
    """The value of an output whose key has left the domain."""

    def __repr__(self) -> str:
        return "GONE"


GONE: Final = Gone()


class Crash(msgspec.Struct, frozen=True):
    """A query that raised. Readers that call it raise the same; those that `attempt` it get this instead and put a stand-in in
    its place. A stage without a stand-in emits nothing for the member, or what it emitted before, and an output's value is
    None."""

    error: Exception
    where: str = ""
    """`file:line` of what raised it first."""

    @classmethod
    def of(cls, error: Exception) -> Crash:
        """Without the frames, which would be kept for as long as the crash is, and grow with each reader."""
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else ""
        return cls(error.with_traceback(None), where)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Crash) and repr(self.error) == repr(other.error)

    def __hash__(self) -> int:
        return hash(repr(self.error))


class Query(Generic[*Ts, T_co]):
    """A pure function of the graph and a key whose value is remembered, with what it read. A key has no keyword arguments: the
    same value would have several names."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[Graph, *Ts], T_co]) -> None:
        self.fn = fn

    def __call__(self, g: Graph, /, *args: *Ts) -> T_co:
        """Returns the value for this key. Raises what the function raises."""
        value: T_co = g.read((self, *args)).value
        if value.__class__ is Crash:
            raise cast(Crash, value).error
        return value

    def attempt(self, g: Graph, /, *args: *Ts) -> T_co | Crash:
        """The same for readers that a crash must not reach: they put something closed in its place."""
        value: T_co | Crash = g.read((self, *args)).value
        return value

    def __repr__(self) -> str:
        """As `resolve.certificates.key_pair`."""
        return f"{self.fn.__module__.removeprefix('lasthop.')}.{self.fn.__name__}"


def query(fn: Callable[[Graph, *Ts], T]) -> Query[*Ts, T]:
    """Marks a function as a query, so that `fn(g, *key)` reads through the graph."""
    return Query(fn)


class Index(Generic[*Ts, T]):
    """Lists values by key, as the EndpointSlices of a Service. Its keys can be the domain of a later stage."""

    __slots__ = ("name", "sizes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes = Sizes(self)

    def of(self, g: Graph, /, *key: *Ts) -> tuple[T, ...]:
        """Returns what is listed under a key, in the order of the members that have listed it."""
        values: tuple[T, ...] = g.read((self, *key)).value
        g.reads += len(values)
        return values

    def size(self, g: Graph, /, *key: *Ts) -> int:
        """Returns how many values are listed under a key, without reading them."""
        size: int = g.read((self.sizes, *key)).value
        return size

    def entry(self, key: tuple[*Ts], value: T) -> Entry:
        """Returns what an indexer yields to list a value."""
        return (self, *key), value

    def __repr__(self) -> str:
        return f"index {self.name}"


class Sizes:
    """The first part of the ids of an index's sizes."""

    __slots__ = ("index",)

    def __init__(self, index: Index[*tuple[Any, ...], Any]) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"size of {self.index}"


Domain = str | Index[*tuple[Any, ...], Any]
"""A kind, or the keys under which an index lists something."""


class Indexer(msgspec.Struct, frozen=True):
    """Fills indexes from the members of domains."""

    name: str
    domains: tuple[Domain, ...]
    entries: Query[*tuple[Any, ...], dict[NodeId, Any]]
    keeps: bool = False
    """A member that crashes keeps what it listed before: where absence would open something, as that of a policy's claim or of
    a hostname's owner."""


@overload
def indexer(*kinds: str, keeps: bool = False) -> Callable[[Callable[[Graph, Key], Iterable[Entry]]], Indexer]: ...
@overload
def indexer(
    index: Index[*Ts, Any], /, *, keeps: bool = False
) -> Callable[[Callable[[Graph, *Ts], Iterable[Entry]]], Indexer]: ...
def indexer(*domains: Domain, keeps: bool = False) -> Callable[[Callable[..., Iterable[Entry]]], Indexer]:
    """Makes an indexer of a function `f(g, *member)` that yields the entries of a member."""

    def stage(fn: Callable[..., Iterable[Entry]]) -> Indexer:
        return Indexer(fn.__name__, domains, query(functools.wraps(fn)(lambda g, *member: dict(fn(g, *member)))), keeps)

    return stage


class Output(msgspec.Struct, frozen=True):
    """One value for each member of a domain, reported by `settle()` when it changes."""

    name: str
    domain: Domain
    value: Query[*tuple[Any, ...], Any]
    named: bool = False
    """Outputs that set `names` refer to this one's members."""
    names: bool = False
    """In a limited `settle()` it is held back for those by whose changes a named output has members that nobody has been told
    of yet."""


Stage = Indexer | Output

Hold = Mapping[str, Collection[Any]]
"""By output: members whose key begins with one of these."""
NOTHING: Final[Hold] = MappingProxyType({})


CLEAN: Final = 0
MAYBE: Final = 1
"""Something that it read, directly or not, may have changed."""
DIRTY: Final = 2


class Node:
    __slots__ = ("changed", "deps", "id", "marked", "pinned", "readers", "state", "value", "verified")

    def __init__(self, id: NodeId) -> None:
        self.id = id
        self.value: Any = None
        self.deps: tuple[Node, ...] = ()
        self.readers: set[Node] = set()
        self.state: int = DIRTY
        self.changed = 0
        self.verified = 0
        self.marked: str | None = None
        """Whose change was the last to reach it, while it is not clean."""
        self.pinned: tuple[int, Any] | None = None
        """(stage number, member key) where this node is a stage's own."""

    def __repr__(self) -> str:
        return f"<{self.id} {('clean', 'maybe', 'dirty')[self.state]}>"


_INPUT: Final = "input"
_BEFORE: Final = "before"


def _owner(key: Any) -> str:
    """The namespace of an object, or of the last object in a member's key; empty for what is nobody's."""
    if isinstance(key, Key):
        return key.namespace
    parts = reversed(key) if isinstance(key, tuple) else ()
    return next((part.namespace for part in parts if isinstance(part, Key)), "")


def input_node(key: Hashable) -> NodeId:
    """Where recorded reads show an input."""
    return (_INPUT, key)


class Graph:
    def __init__(self, stages: Iterable[Stage] = (), now: float = 0.0) -> None:
        self.stages = tuple(stages)
        self.now = now
        self.reads = 0
        """Values read by queries, an index counting once for each entry: with `recomputed`, what an edit costs."""
        self.recomputed = 0
        self.crashes: dict[NodeId, Crash] = {}
        """Queries that raise by themselves, not because something that they read does."""
        self._revision = 1
        self._sets = 0
        """How often an input has changed."""
        self._inputs: dict[Any, Any] = {}
        self._listed: dict[NodeId, dict[Any, Any]] = {}
        """By index and key: the values of members."""
        self._nodes: dict[NodeId, Node] = {}
        self._stack: list[dict[Node, None]] = []
        self._running: list[NodeId] = []
        self._deadlines: list[float] = []
        self._domains: dict[Domain, list[int]] = {}
        for number, stage in enumerate(self.stages):
            for domain in stage.domains if isinstance(stage, Indexer) else (stage.domain,):
                self._domains.setdefault(domain, []).append(number)
        self._dirty: list[dict[Any, None]] = [{} for _ in self.stages]
        self._queues: list[dict[str, dict[Any, None]]] = [{} for _ in self.stages]
        """The same by the owner of what changed, the one whose turn it is first. May name members that are clean again."""
        self._entries: list[dict[Any, dict[NodeId, Any]]] = [{} for _ in self.stages]
        self._members: list[set[Any]] = [set() for _ in self.stages]
        self._told: list[dict[Any, int]] = [{} for _ in self.stages]
        """The revision of each member's value that was last emitted or reported."""

    # --- what queries call -------------------------------------------------------------------------------------------

    def read(self, id: NodeId) -> Node:
        """Returns a node that is up to date, as one that the running query has read. Outside of a query nothing is kept."""
        node = self._nodes.get(id)
        if node is None:
            node = self._nodes[id] = Node(id)
        if node.state != CLEAN:
            self._refresh(node)
        self.reads += 1
        if self._stack:
            self._stack[-1][node] = None
        else:
            self._drop_if_unread(node)
        return node

    def shielded(self, fn: Callable[[Graph, *Ts], T], *args: *Ts) -> T | Crash:
        """Calls a plain function as a part of the query that is being worked out: one of many parts, where that one's crash
        must not take the others along."""
        try:
            return fn(self, *args)
        except Exception as error:
            crash = Crash.of(error)
            if self._stack:
                self._note(self._running[-1], crash, self._stack[-1])
            return crash

    def input(self, key: Hashable) -> Any:
        """An input's value, None where nobody has set it."""
        return self.read((_INPUT, key)).value

    def before(self, deadline: float) -> bool:
        """Whether that moment is still to come. Time never enters in any other way."""
        value: bool = self.read((_BEFORE, deadline)).value
        return value

    # --- what the edges call -----------------------------------------------------------------------------------------

    def set(self, key: Hashable, value: Any) -> bool:
        """Sets an input (None: it is not there); says whether that changed anything."""
        if self._inputs.get(key) == value:
            return False
        self._sets += 1
        if value is None:
            del self._inputs[key]
        else:
            self._inputs[key] = value
        self._touch((_INPUT, key), _owner(key))
        return True

    def peek(self, key: Hashable) -> Any:
        return self._inputs.get(key)

    def enter(self, domain: Domain, key: Any, owner: str | None = None) -> None:
        """A member joins a domain."""
        for number in self._domains.get(domain, ()):
            self._members[number].add(key)
            self._mark(number, key, _owner(key) if owner is None else owner)

    def leave(self, domain: Domain, key: Any, owner: str | None = None) -> None:
        for number in self._domains.get(domain, ()):
            self._members[number].discard(key)
            self._mark(number, key, _owner(key) if owner is None else owner)

    def _mark(self, number: int, key: Any, owner: str) -> None:
        """To be looked at. Where there is a limit, the owners of what changed take turns; of each the latest goes first."""
        self._dirty[number][key] = None
        queue = self._queues[number].setdefault(owner, {})
        queue.pop(key, None)
        queue[key] = None

    def advance(self, now: float) -> None:
        """Lets time pass: every deadline up to `now` is over."""
        self.now = max(now, self.now)
        while self._deadlines and self._deadlines[0] <= self.now:
            self._touch((_BEFORE, heapq.heappop(self._deadlines)), "")

    def next_deadline(self) -> float | None:
        return self._deadlines[0] if self._deadlines else None

    def settle(
        self,
        limit: int | None = None,
        only: Collection[str] | None = None,
        enough: Callable[[], bool] = lambda: False,
        hold: Hold = NOTHING,
    ) -> dict[str, dict[Any, Any]]:
        """Brings everything up to date; returns changed outputs as {output name: {member key: value or GONE}}.

        With a limit, at most that many members of each output, and once there is `enough`, one of each: call again while
        `unsettled`. Those whose changes they follow take turns, so what concerns thousands, or is made again and again, does
        not hold up what others do. `only`: these outputs and no other. `hold`: these members not yet.
        """
        changes: dict[str, dict[Any, Any]] = {}
        for _ in range(len(self.stages) + 1):
            if not any(self._dirty):
                return changes
            introducing: frozenset[str] = frozenset()
            for number, stage in enumerate(self.stages):
                if isinstance(stage, Output) and only is not None and stage.name not in only:
                    continue
                bound = limit if isinstance(stage, Output) else None
                waiting = introducing if isinstance(stage, Output) and stage.names else ()
                for key in self._take_dirty(number, bound, enough, hold.get(stage.name, ()), waiting):
                    self._settle_member(number, stage, key, changes)
                if isinstance(stage, Output) and stage.named:
                    introducing |= self._introducing(number)
            limited = limit is not None or only is not None
            if limited and not any(
                dirty for dirty, stage in zip(self._dirty, self.stages, strict=True) if isinstance(stage, Indexer)
            ):
                return changes
        raise RuntimeError("stages feed each other in a circle")

    @property
    def version(self) -> tuple[int, int]:
        """Another with every change of an input, also of one that nobody has read yet, and as time passes a deadline: while it
        is the same and everything is settled, every value and every member is the same."""
        return self._sets, self._revision

    @property
    def unsettled(self) -> bool:
        return any(self._dirty)

    def unsettled_but(self, hold: Hold) -> bool:
        """Whether there is anything to do besides what is held."""
        named = zip(self.stages, self._dirty, strict=True)
        return any(key[0] not in hold.get(stage.name, ()) for stage, dirty in named for key in dirty)

    def waiting(self, *outputs: str) -> bool:
        """Whether members of these outputs are still to be looked at."""
        named = zip(self.stages, self._dirty, strict=True)
        return any(dirty for stage, dirty in named if stage.name in outputs)

    def _introducing(self, number: int) -> frozenset[str]:
        """Those by whose changes an output has members that nobody has been told of yet."""
        told, dirty = self._told[number], self._dirty[number]
        queues = self._queues[number].items()
        return frozenset(owner for owner, queue in queues if any(key in dirty and key not in told for key in queue))

    def _take_dirty(
        self, number: int, limit: int | None, enough: Callable[[], bool], held: Container[Any], waiting: Collection[str]
    ) -> Iterator[Any]:
        """`held`: members that wait, by the first of their key; `waiting`: those whose changes wait."""
        dirty, queues = self._dirty[number], self._queues[number]
        if limit is None:
            self._dirty[number], self._queues[number] = {}, {}
            yield from dirty
            return
        aside = {owner: queues.pop(owner) for owner in waiting if owner in queues}
        taken, passed = 0, []
        while queues and taken < limit and not (taken and enough()):
            owner = next(iter(queues))
            queue = queues.pop(owner)
            key = queue.popitem()[0]
            if queue:
                queues[owner] = queue
            if key in dirty and key[0] in held:
                passed.append((owner, key))
            elif key in dirty:
                del dirty[key]
                taken += 1
                yield key
        queues.update(aside)
        for owner, key in reversed(passed):
            self._mark(number, key, owner)

    # --- settling ----------------------------------------------------------------------------------------------------

    def _settle_member(self, number: int, stage: Stage, key: Any, changes: dict[str, dict[Any, Any]]) -> None:
        fn = stage.entries if isinstance(stage, Indexer) else stage.value
        id = (fn, *key)
        if key not in self._members[number]:
            node = self._nodes.get(id)
            if node is not None:
                node.pinned = None
                self._drop_if_unread(node)
            if self._told[number].pop(key, None) is None:
                return
            if isinstance(stage, Indexer):
                self._list(number, key, {})
            else:
                changes.setdefault(stage.name, {})[key] = GONE
            return
        node = self._node(id)
        node.pinned = (number, key)
        self._refresh(node)
        if self._told[number].get(key) == node.changed:
            return
        self._told[number][key] = node.changed
        value = node.value
        if isinstance(value, Crash):
            if isinstance(stage, Indexer) and stage.keeps:
                return
            value = {} if isinstance(stage, Indexer) else None
        if isinstance(stage, Indexer):
            self._list(number, key, value)
        else:
            changes.setdefault(stage.name, {})[key] = value

    def _list(self, number: int, key: Any, new: dict[NodeId, Any]) -> None:
        """Moves a member from where it was listed to where it is listed now."""
        old, owner = self._entries[number].pop(key, {}), _owner(key)
        if new:
            self._entries[number][key] = new
        for id in old.keys() - new.keys():
            del self._listed[id][key]
            self._touch(id, owner)
            self._touch((id[0].sizes, *id[1:]), owner)
            if not self._listed[id]:
                del self._listed[id]
                self.leave(id[0], id[1:], owner)
        for id, value in new.items():
            listed = self._listed.setdefault(id, {})
            known = key in listed
            if known and listed[key] == value:
                continue
            listed[key] = value
            self._touch(id, owner)
            if not known:
                self._touch((id[0].sizes, *id[1:]), owner)
                if len(listed) == 1:
                    self.enter(id[0], id[1:], owner)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _node(self, id: NodeId) -> Node:
        node = self._nodes.get(id)
        if node is None:
            node = self._nodes[id] = Node(id)
        return node

    def _refresh(self, node: Node) -> None:
        if node.state == MAYBE:
            for dep in node.deps:
                self._refresh(dep)
                if dep.changed > node.verified:
                    break
            else:
                node.state = CLEAN
                node.verified = self._revision
                return
        elif node.state == CLEAN:
            return
        self._recompute(node)

    def _recompute(self, node: Node) -> None:
        source = node.id[0]
        if not isinstance(source, Query):
            value = self._input_value(source, node.id)
        else:
            reads: dict[Node, None] = {}
            self.crashes.pop(node.id, None)
            self._stack.append(reads)
            self._running.append(node.id)
            try:
                value = source.fn(self, *node.id[1:])
            except Exception as error:
                value = Crash.of(error)
                self._note(node.id, value, reads)
            finally:
                self._stack.pop()
                self._running.pop()
            self.recomputed += 1
            old, node.deps = node.deps, tuple(reads)
            for dep in node.deps:
                dep.readers.add(node)
            for dep in old:
                if dep not in reads:
                    dep.readers.discard(node)
                    self._drop_if_unread(dep)
        if node.changed == 0 or value != node.value:
            node.value = value
            node.changed = self._revision
        node.state = CLEAN
        node.verified = self._revision

    def _note(self, id: NodeId, crash: Crash, reads: Iterable[Node]) -> None:
        """Unless it is the crash of something that was read, which is noted there."""
        if not any(dep.value.__class__ is Crash and dep.value.error is crash.error for dep in reads):
            self.crashes[id] = crash

    def _input_value(self, source: str | Index[*tuple[Any, ...], Any] | Sizes, id: NodeId) -> Any:
        if source is _INPUT:
            return self._inputs.get(id[1])
        if isinstance(source, Index):
            return tuple(value for _, value in sorted(self._listed.get(id, {}).items()))
        if isinstance(source, Sizes):
            return len(self._listed.get((source.index, *id[1:]), ()))
        deadline: float = id[1]
        if deadline > self.now:
            heapq.heappush(self._deadlines, deadline)
        return deadline > self.now

    def _touch(self, id: NodeId, owner: str) -> None:
        """An input of that owner has changed: its readers, and theirs, may be out of date. Those that are so already, by
        somebody else's change, are marked once more: they need not wait until it is that one's turn."""
        node = self._nodes.get(id)
        if node is None:
            return
        self._revision += 1
        node.state = DIRTY
        todo = list(node.readers)
        while todo:
            reader = todo.pop()
            if reader.state == CLEAN:
                reader.state = MAYBE
            elif reader.marked == owner:
                continue
            reader.marked = owner
            if reader.pinned is not None:
                number, key = reader.pinned
                self._mark(number, key, owner)
            todo.extend(reader.readers)

    def _drop_if_unread(self, node: Node) -> None:
        if node.readers or node.pinned is not None or self._nodes.get(node.id) is not node:
            return
        del self._nodes[node.id]
        self.crashes.pop(node.id, None)
        for dep in node.deps:
            dep.readers.discard(node)
            self._drop_if_unread(dep)

    # --- what recorded reads are good for ----------------------------------------------------------------------------

    def reads_at(self, id: NodeId) -> tuple[NodeId, ...]:
        """What a query read when it was last computed; empty if it has not been. Inputs read nothing."""
        node = self._nodes.get(id)
        return tuple(dep.id for dep in node.deps) if node else ()

    def readers_at(self, id: NodeId) -> tuple[NodeId, ...]:
        """The way back: which queries read it when they were last computed, in no particular order."""
        node = self._nodes.get(id)
        return tuple(reader.id for reader in node.readers) if node else ()

    def is_member(self, stage: str, key: Any) -> bool:
        return key in self._members[self._number(stage)]

    def _number(self, stage: str) -> int:
        return next(n for n, s in enumerate(self.stages) if s.name == stage)

    def members(self, stage: str) -> Mapping[Any, Any]:
        """All current values of an output."""
        number = self._number(stage)
        output = self.stages[number]
        assert isinstance(output, Output), f"{stage} is no output"
        fn = output.value
        return {key: self._nodes[(fn, *key)].value for key in self._members[number] if (fn, *key) in self._nodes}
