"""Saves across restarts which policy each Service port had last, so that a policy which is deleted while Lasthop is stopped is
noticed too. Losing the file loses only that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from lasthop.api.meta import Key

Policies = Mapping[tuple[Key, int], Key]
"""By Service and port."""


class _Entry(msgspec.Struct, array_like=True):
    service: tuple[str, str]
    port: int
    policy: tuple[str, str]


def load(path: Path) -> Policies:
    """Returns an empty mapping if the file does not exist or cannot be read."""
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {(Key("Service", *e.service), e.port): Key("BackendTLSPolicy", *e.policy) for e in entries}


def save(path: Path, policies: Policies) -> None:
    """Writes the whole file or nothing. Raises `OSError`."""
    entries = [
        _Entry((service.namespace, service.name), port, (policy.namespace, policy.name))
        for (service, port), policy in sorted(policies.items())
    ]
    written = path.with_suffix(".new")
    written.touch(mode=0o600)
    written.write_bytes(msgspec.json.encode(entries))
    os.replace(written, path)
