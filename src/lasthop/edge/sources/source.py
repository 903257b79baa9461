"""Declares a source of objects. It yields batches, which the store applies completely."""

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
    """All current problems of the input, not only new ones."""
    unknown: tuple[Unknown, ...] = ()
    """All parts of the input that may contain a BackendTLSPolicy and have not been read. If there are none, a policy that is
    not present is absent. A source that proves absence port by port reads its policies last at the start, so that its first
    batch has an empty list here. Ports that are plaintext then are proven; every later port waits for `proven`."""
    crd_versions: CrdVersions = ()
    """Versions of the installed Gateway API CRDs; our own CRDs, which admit files, are not listed."""
    absent_kinds: frozenset[str] = frozenset()
    """Kinds that the API server does not serve. In files every kind may appear."""
    not_applied: tuple[NotApplied, ...] = ()
    """All files whose current text is rejected, with the content that is in force instead."""
    complete: bool = True
    """False while a part of the input is still being read."""
    proven: Proofs = {}
    """Ports that no policy names, as requested by `ObjectSource.prove`."""
    edited: Mapping[Key, bool] = {}
    """Objects that were edited while Lasthop was not running, with whether they existed before. Only the first batch has
    them."""

    @property
    def policies_known(self) -> bool:
        return not self.unknown


class ObjectSource(Protocol):
    def batches(self) -> AsyncIterator[Batch]:
        """Yields all existing objects at the start, and then changes."""
        ...

    def prove(self, ports: Proofs) -> None:
        """Receives all ports that need a proof that no policy names them. Proofs arrive with a later batch. A source without
        proofs per port need not implement this: its batches without `unknown` prove absence for all ports."""
        return None
