"""Suggests the closest existing name for a reference to a missing object."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.text.suggestions import closest
from lasthop.engine.plan.finding import Finding
from lasthop.engine.store.store import Store

MAX_NAMES: Final = 2000
"""Limit of names to compare."""


def with_suggestion(finding: Finding, store: Store) -> Finding:
    """Returns the finding with a suggestion, if an object of that kind and namespace has nearly the missing name."""
    missing = next((key for key in finding.missing if key.name and store.get(key) is None), None)
    if missing is None or any(key[:2] == missing[:2] and key != missing for key in finding.about):
        return finding  # nothing is missing, or the finding has a suggestion already
    close = _close(missing, store)
    return msgspec.structs.replace(finding, remedy=f"Did you mean {close}? {finding.remedy}".strip()) if close else finding


def _close(missing: Key, store: Store) -> str:
    names = [key.name for key in store.keys(missing.kind) if key.namespace == missing.namespace]
    # An object of that name exists but cannot be read.
    return "" if len(names) > MAX_NAMES or missing.name in names else closest(missing.name, names)
