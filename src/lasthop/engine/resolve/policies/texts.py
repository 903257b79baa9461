"""Reads both versions of a BackendTLSPolicy: the one in force, and a newer one that cannot be read completely."""

from __future__ import annotations

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import OBJECTS


def read_policy(g: Graph, key: Key) -> BackendTLSPolicy | None:
    """Returns the text of a policy that is in force: the last good one if the current one cannot be read completely."""
    return read_texts(g, key)[0]


def read_texts(g: Graph, key: Key) -> tuple[BackendTLSPolicy | None, RejectedPolicy | None]:
    """Returns the text in force, and the current one if it cannot be read completely."""
    obj = OBJECTS.of(g, key)
    if isinstance(obj, RejectedPolicy):
        return obj.last_good, obj
    return obj if isinstance(obj, BackendTLSPolicy) else None, None
