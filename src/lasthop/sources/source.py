"""Declares a source of objects. It yields batches, which the store applies whole."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from lasthop.api.bundle import CrdVersions
from lasthop.api.meta import Key, Object
from lasthop.plan.finding import Finding
from lasthop.plan.not_applied import NotApplied


class Batch(msgspec.Struct, frozen=True):
    changes: Mapping[Key, Object | None]
    """New or changed objects, and None for deleted ones. A BackendTLSPolicy that could not be fully decoded is a
    `RejectedPolicy`."""
    findings: tuple[Finding, ...] = ()
    """Everything that is wrong with the input now: the whole list, not only what is new."""
    policies_known: bool = True
    """False while some input that may contain a BackendTLSPolicy is unreadable and has no last good content: then nothing
    new may be served in plaintext, because "unknown" does not mean "none"."""
    crd_versions: CrdVersions = ()
    """Of the CRDs of the Gateway API that are installed. Those of our own that admit files are not mentioned."""
    absent_kinds: frozenset[str] = frozenset()
    """Those that an API server does not serve. In files every kind may come."""
    not_applied: tuple[NotApplied, ...] = ()
    """The files whose current text is rejected, and what is in force instead: the whole list."""
    complete: bool = True
    """False while a part of the input is still being read."""
    policies_doubtful: bool = False
    """The current text of some input cannot be read, and an older one is in force: a missing policy may have moved there, so
    what it protected does not become plaintext."""


class Source(Protocol):
    def batches(self) -> AsyncIterator[Batch]:
        """Yields everything that exists at the start, and then what has changed."""
        ...
