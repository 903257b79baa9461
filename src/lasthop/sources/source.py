"""Where objects come from. A source yields batches; the store takes them whole, so nothing is ever half applied."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from lasthop.api.meta import Key, Object, StringMap
from lasthop.plan.finding import Finding
from lasthop.plan.not_applied import NotApplied


class Batch(msgspec.Struct, frozen=True):
    changes: Mapping[Key, Object | None]
    """Objects that are new or different, and None for those that are gone. A BackendTLSPolicy that could not be read whole
    is a `RejectedPolicy`."""
    findings: tuple[Finding, ...] = ()
    """Everything that is wrong with the input now: the whole list, not what is new."""
    policies_known: bool = True
    """False while some input that might hold a BackendTLSPolicy could be neither read nor remembered: then nothing new may
    be served in plaintext, because not knowing is not "none"."""
    crd_versions: StringMap = StringMap()
    """CRD of the Gateway API -> its bundle version, "" if that cannot be told. Those of our own that admit files are not
    mentioned."""
    not_applied: tuple[NotApplied, ...] = ()
    """The files whose present text is refused, and what is in force instead: the whole list."""
    complete: bool = True
    """False while a part of what has been written is still being read."""
    policies_doubtful: bool = False
    """The present text of some input cannot be read, and an older one is in force: a policy that is gone may have moved there,
    so what it protected does not become plaintext."""


class Source(Protocol):
    def batches(self) -> AsyncIterator[Batch]:
        """The first batch holds everything that is there at the start; each later one what changed since."""
        ...
