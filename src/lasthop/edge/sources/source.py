"""Declares a source of objects. It yields batches, which the store applies whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from lasthop.base.api.bundle import CrdVersions
from lasthop.base.api.meta import Key, Object
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.knowledge import Proofs, Unknown
from lasthop.engine.plan.not_applied import NotApplied


class Batch(msgspec.Struct, frozen=True):
    changes: Mapping[Key, Object | None]
    """New or changed objects, and None for deleted ones. A BackendTLSPolicy that could not be fully decoded is a
    `RejectedPolicy`."""
    findings: tuple[Finding, ...] = ()
    """Everything that is wrong with the input now: the whole list, not only what is new."""
    unknown: tuple[Unknown, ...] = ()
    """Everything that may contain a BackendTLSPolicy and has not been read: the whole list. Empty: a policy that is not there
    is absent. A source that proves absence port by port reads its policies last at the start, so that its first batch has
    nothing here; all ports that are plaintext then are proven, and every later one waits for `proven`."""
    crd_versions: CrdVersions = ()
    """Of the CRDs of the Gateway API that are installed. Those of our own that admit files are not mentioned."""
    absent_kinds: frozenset[str] = frozenset()
    """Those that an API server does not serve. In files every kind may come."""
    not_applied: tuple[NotApplied, ...] = ()
    """The files whose current text is rejected, and what is in force instead: the whole list."""
    complete: bool = True
    """False while a part of the input is still being read."""
    proven: Proofs = {}
    """Ports that no policy names, as requested by `ObjectSource.prove`."""

    @property
    def policies_known(self) -> bool:
        return not self.unknown


class ObjectSource(Protocol):
    def batches(self) -> AsyncIterator[Batch]:
        """Yields everything that exists at the start, and then what has changed."""
        ...

    def prove(self, ports: Proofs) -> None:
        """Takes all ports that wait for a proof that no policy names them. Proofs come with a later batch. A source that
        proves nothing port by port need not implement this: its batches without `unknown` prove absence for all ports."""
        return None
