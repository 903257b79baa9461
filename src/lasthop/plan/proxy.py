"""What is known of a Gateway's proxy."""

from __future__ import annotations

import msgspec

from lasthop.api.meta import Key


class ProxyState(msgspec.Struct, frozen=True):
    connected: bool = False
    ports: frozenset[int] = frozenset()
    """Ports whose current listener the proxy has acknowledged."""
    problem: str = ""
    """Why there is no proxy, or what it refused."""


def proxy_input(gateway: Key) -> tuple[str, Key]:
    return ("proxy", gateway)
