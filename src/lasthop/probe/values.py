"""What the gateway asks of a backend, and what one check of it has found."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from lasthop.plan.tls import BackendTLS
from lasthop.probe.handshake import Attempt, Identity, attempt

SHOWN: Final = 5
"""CAs and names that are listed; more would hide the answer."""


class State(StrEnum):
    PASS = "pass"
    WARN = "warn"
    """The gateway connects, but the backend may refuse requests all the same."""
    FAIL = "fail"
    SKIP = "skip"
    """Not asked for."""


class Check(msgspec.Struct, frozen=True):
    name: str
    state: State
    found: str
    remedy: str = ""
    """What to change if it fails or warns."""


class Wish(NamedTuple):
    tls: BackendTLS
    alpn: tuple[str, ...]
    identity: Identity | None
    """The Gateway's own certificate."""
    http: bool = True
    """Whether HTTP is spoken after the handshake, so that what ALPN picks matters."""

    def attempt(self, address: tuple[str, int], timeout: float, **checks: bool) -> Attempt:
        return attempt(address, self.tls, self.alpn, self.identity, timeout, **checks)
