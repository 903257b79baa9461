"""The result of a probe as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from lasthop.probe.plan import Probed


def document(found: Probed) -> dict[str, Any]:
    """Adds the verdicts, which are derived."""
    shown: dict[str, Any] = msgspec.to_builtins(found)
    shown["passes"] = found.passes
    for entry, aimed in zip(shown["targets"], found.targets, strict=True):
        entry["passes"] = aimed.passes
        for tried, each in zip(entry["endpoints"], aimed.endpoints, strict=True):
            tried["passes"] = each.passes
    return shown
