"""Reads the texts of a BackendTLSPolicy: one that is in force, one that cannot be read whole, or both."""

from __future__ import annotations

from lasthop.api.meta import Key
from lasthop.api.policies import BackendTLSPolicy, RejectedPolicy
from lasthop.store.graph import Graph
from lasthop.store.store import OBJECTS, read


def read_policy(g: Graph, key: Key) -> BackendTLSPolicy | None:
    """Returns the text of a policy that is in force: the last good one where the present one cannot be read whole."""
    rejected = read_rejected(g, key)
    return rejected.last_good if rejected else read(g, key, BackendTLSPolicy)


def read_rejected(g: Graph, key: Key) -> RejectedPolicy | None:
    """Returns the present text of a policy if it cannot be read whole."""
    obj = OBJECTS.of(g, key)
    return obj if isinstance(obj, RejectedPolicy) else None
