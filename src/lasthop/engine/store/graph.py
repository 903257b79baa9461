"""The incremental query graph: it records what each query reads, and runs a query again only if one of its inputs changed.

    sources ──read by──> queries ──read by──> stages
    (inputs, indexes,     (pure functions      (one query for each member of a domain: an index entry, a status,
     deadlines)            f(g, *key) that      an xDS resource; see `stages.py`)
                           are marked @query)

A changed source marks its readers, transitively, as possibly out of date. A query runs again only if one of its inputs really
changed, and a result that equals the old one stops the wave. A missing input is an input with the value None, so "the
ConfigMap appears later" needs no special case."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, cast

from lasthop.engine.store.node import CLEAN, DIRTY, FEW, MAYBE, Crash, Node, NodeId, owner_of
from lasthop.engine.store.turns import Member, Turns

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Ts = TypeVarTuple("Ts")


class Query(Generic[*Ts, T_co]):
    """A pure function of the graph and a key, whose value is cached with the inputs that it read. Keys have no keyword
    arguments, because the same value would then have several keys."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[[Graph, *Ts], T_co]) -> None:
        self.fn = fn

    def __call__(self, g: Graph, /, *args: *Ts) -> T_co:
        """Returns the value for this key. Raises what the function raises."""
        value: T_co = g.read((self, *args))
        if value.__class__ is Crash:
            raise cast(Crash, value).error
        return value

    def attempt(self, g: Graph, /, *args: *Ts) -> T_co | Crash:
        """Returns the value, or the crash. Callers replace a crash by something that fails closed."""
        value: T_co | Crash = g.read((self, *args))
        return value

    def __repr__(self) -> str:
        """Returns a name such as `resolve.certificates.key_pair`."""
        return f"{self.fn.__module__.removeprefix('lasthop.engine.')}.{self.fn.__name__}"


def query(fn: Callable[[Graph, *Ts], T]) -> Query[*Ts, T]:
    """Marks a function as a query, so that `fn(g, *key)` reads through the graph."""
    return Query(fn)


class _Before:
    """A source for whether a deadline is in the future."""

    def current(self, g: Graph, id: NodeId, /) -> bool:
        return g.expects(id[1])

    def __repr__(self) -> str:
        return "before"


BEFORE: Final = _Before()


class Graph:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.reads = 0
        """Number of values that queries read, with one per entry of an index. Together with `recomputed`, it measures the cost
        of an edit."""
        self.recomputed = 0
        self.crashes: dict[NodeId, Crash] = {}
        """Queries that raised an exception themselves, not through a query that they read."""
        self.inputs: dict[NodeId, object] = {}
        self.listed: dict[NodeId, dict[Member, object]] = {}
        """Values of members by index and key."""
        self.nodes: dict[NodeId, Node] = {}
        self._revision = 1
        self._sets = 0
        """Number of changes of inputs."""
        self._running: NodeId | None = None
        """The running query; `_reading` collects its reads."""
        self._reading: dict[Node, None] | None = None
        self._unread: list[Node] = []
        self._deadlines: list[float] = []

    # --- what queries call -------------------------------------------------------------------------------------------

    def read(self, id: NodeId) -> Any:
        """Returns an up-to-date value and records the read for the running query. Outside a query, the value is not cached."""
        node = self.nodes.get(id)
        if node is None:
            node = self._create(id)
        elif node.state != CLEAN:
            self.refresh(node)
        if self._reading is not None:
            self._reading[node] = None
        else:
            self._unread.append(node)
            self._drop_unread()
        return node.value

    def shielded(self, fn: Callable[[Graph, *Ts], T], *args: *Ts) -> T | Crash:
        """Calls a plain function as one of many parts of the running query, so that its crash does not affect the other
        parts."""
        try:
            return fn(self, *args)
        except Exception as error:
            crash = Crash.of(error)
            if self._running is not None and self._reading is not None:
                self._note(self._running, crash, self._reading)
            return crash

    def before(self, deadline: float) -> bool:
        """Returns whether a deadline is in the future. This is the only way to read the time."""
        value: bool = self.read((BEFORE, deadline))
        return value

    # --- what changes ------------------------------------------------------------------------------------------------

    def set(self, id: NodeId, value: object) -> bool:
        if self.inputs.get(id) == value:
            return False
        self._sets += 1
        if value is None:
            del self.inputs[id]
        else:
            self.inputs[id] = value
        self.touch(id, owner_of(id))
        return True

    def advance(self, now: float) -> None:
        """Advances the clock: every deadline up to `now` has passed."""
        self.now = max(now, self.now)
        while self._deadlines and self._deadlines[0] <= self.now:
            self.touch((BEFORE, heapq.heappop(self._deadlines)), "")

    def expects(self, deadline: float) -> bool:
        if deadline > self.now:
            heapq.heappush(self._deadlines, deadline)
        return deadline > self.now

    def next_deadline(self) -> float | None:
        return self._deadlines[0] if self._deadlines else None

    @property
    def version(self) -> tuple[int, int]:
        """Changes with every input, even an unread one, and when a deadline passes. As long as it stays equal and everything
        is settled, all values and members stay equal."""
        return self._sets, self._revision

    def step(self) -> None:
        """Starts a revision, so that values computed for the first time from now on are newer than all others."""
        self._revision += 1

    def touch(self, id: NodeId, owner: str) -> None:
        """Marks the direct and indirect readers of a changed source as possibly out of date, on behalf of the owner of the
        change. Readers that another owner's change has marked are marked again, so that they need not wait for that owner's
        turn."""
        node = self.nodes.get(id)
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
            for turns in reader.pinned:
                turns.mark(reader.id[1:], owner)
            todo.extend(reader.readers)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def pin(self, id: NodeId, turns: Turns) -> Node:
        """Returns an up-to-date node and keeps it in the graph. `turns` is marked when the member may have changed."""
        node = self.nodes.get(id)
        if node is None:
            node = self._create(id)
        elif node.state != CLEAN:
            self.refresh(node)
        if turns not in node.pinned:
            node.pinned = (*node.pinned, turns)
        if self._unread:
            self._drop_unread()
        return node

    def unpin(self, id: NodeId, turns: Turns) -> None:
        node = self.nodes.get(id)
        if node is not None:
            node.pinned = tuple(pin for pin in node.pinned if pin is not turns)
            self._drop_if_unread(node)

    def refresh(self, node: Node) -> None:
        if node.state == MAYBE:
            for dep in node.deps:
                if dep.state != CLEAN:
                    self.refresh(dep)
                if dep.changed > node.verified:
                    break
            else:
                node.state = CLEAN
                node.verified = self._revision
                return
        elif node.state == CLEAN:
            return
        self._recompute(node)

    def _create(self, id: NodeId) -> Node:
        """Computes a value for the first time. This dominates start-up, so rare cases are handled elsewhere."""
        source = id[0]
        if source.__class__ is not Query:
            node = self.nodes[id] = Node(id, source.current(self, id), (), self._revision)
            return node
        reads: dict[Node, None] = {}
        value = self._compute(id, reads)
        deps = tuple(reads)
        node = self.nodes[id] = Node(id, value, deps, self._revision)
        for dep in deps:
            readers = dep.readers
            if readers.__class__ is tuple and len(readers) < FEW:
                dep.readers = (*readers, node)
            else:
                dep.add_reader(node)
        return node

    def _recompute(self, node: Node) -> None:
        reads: dict[Node, None] = {}
        source = node.id[0]
        value = self._compute(node.id, reads) if source.__class__ is Query else source.current(self, node.id)
        old, deps = node.deps, tuple(reads)
        if deps != old:  # most queries read the same values again
            node.deps = deps
            for dep in deps:
                dep.add_reader(node)
            for dep in old:
                if dep not in reads:
                    dep.remove_reader(node)
                    if not dep.readers:
                        self._unread.append(dep)
        if value != node.value:
            node.value = value
            node.changed = self._revision
        node.state = CLEAN
        node.verified = self._revision

    def _compute(self, id: NodeId, reads: dict[Node, None]) -> Any:
        """Runs a query and collects its reads in `reads`."""
        if self.crashes:
            self.crashes.pop(id, None)
        running, reading = self._running, self._reading
        self._running, self._reading = id, reads
        try:
            return id[0].fn(self, *id[1:])
        except Exception as error:
            crash = Crash.of(error)
            self._note(id, crash, reads)
            return crash
        finally:
            self._running, self._reading = running, reading
            self.recomputed += 1
            self.reads += len(reads)

    def _note(self, id: NodeId, crash: Crash, reads: Iterable[Node]) -> None:
        """Records a crash, unless a query among the reads raised and recorded it."""
        if not any(dep.value.__class__ is Crash and dep.value.error is crash.error for dep in reads):
            self.crashes[id] = crash

    def _drop_unread(self) -> None:
        """Drops nodes without readers. Only while no query runs: a running query becomes a reader of its nodes when it
        ends."""
        unread, self._unread = self._unread, []
        for node in unread:
            self._drop_if_unread(node)

    def _drop_if_unread(self, node: Node) -> None:
        if node.readers or node.pinned or self.nodes.get(node.id) is not node:
            return
        del self.nodes[node.id]
        self.crashes.pop(node.id, None)
        for dep in node.deps:
            dep.remove_reader(node)
            self._drop_if_unread(dep)

    # --- recorded reads for `explain` and causes ----------------------------------------------------------------------------

    def reads_at(self, id: NodeId) -> tuple[NodeId, ...]:
        """Returns the reads of a query's last run; empty if it never ran, and for sources."""
        node = self.nodes.get(id)
        return tuple(dep.id for dep in node.deps) if node else ()

    def readers_at(self, id: NodeId) -> tuple[NodeId, ...]:
        """Returns the queries that read a node when they last ran, unordered."""
        node = self.nodes.get(id)
        return tuple(reader.id for reader in node.readers) if node else ()
