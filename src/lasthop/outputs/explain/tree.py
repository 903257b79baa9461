"""An explanation as plain values, for the CLI and the admin address."""

from __future__ import annotations

from typing import Any

import msgspec

from lasthop.api.meta import Key
from lasthop.outputs.explain.explain import explain
from lasthop.outputs.explain.fact import Fact, Locate, bad, placed
from lasthop.outputs.explain.reads import reads_tree
from lasthop.plan.messages import CRASHED
from lasthop.store.graph import Graph
from lasthop.store.node import Crash
from lasthop.store.store import OBJECTS


def tree(g: Graph, key: Key, locate: Locate, *, reads: bool = False) -> dict[str, Any] | None:
    """None if there is no such object. `reads`: the recorded reads as they are instead of in words."""
    if OBJECTS.peek(g, key) is None and key.kind == "BackendTLSPolicy":
        key = key._replace(kind="RejectedPolicy")
    if OBJECTS.peek(g, key) is None:
        return None
    fact = reads_tree.attempt(g, key) if reads else explain.attempt(g, key)
    if isinstance(fact, Crash):
        fact = bad(f"{key}: {CRASHED}", object=key)
    return _plain(placed(fact, locate)) if fact else None


def _plain(fact: Fact) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.structs.asdict(fact)
    found["object"] = fact.object._asdict() if fact.object else None
    found["because"] = [_plain(each) for each in fact.because]
    found["state"] = str(fact.state)
    return {name: value for name, value in found.items() if value}
