"""Reads the texts of a BackendTLSPolicy: one that is in force, one that cannot be read whole, or both."""

from __future__ import annotations

from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.store.graph import Graph
from lasthop.store.store import OBJECTS


def read_policy(g: Graph, key: Key) -> BackendTLSPolicy | None:
    """Returns the text of a policy that is in force: the last good one where the present one cannot be read whole."""
    obj = OBJECTS.of(g, key)
    if isinstance(obj, RejectedPolicy):
        return obj.last_good
    return obj if isinstance(obj, BackendTLSPolicy) else None


def read_rejected(g: Graph, key: Key) -> RejectedPolicy | None:
    """Returns the present text of a policy if it cannot be read whole."""
    obj = OBJECTS.of(g, key)
    return obj if isinstance(obj, RejectedPolicy) else None
