"""Gateways and listeners as they will be served."""

from __future__ import annotations

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.reasons import Condition


class Listener(msgspec.Struct, frozen=True):
    name: str
    port: int
    protocol: str
    hostname: str
    """Empty: every hostname."""
    table: str
    """Name of its route table: HTTP listeners of one port share one, every other listener has its own."""
    certificates: tuple[Key, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """All but Programmed, which depends on the proxy."""
    supported_kinds: tuple[str, ...] = ()
    served: bool = True
    """Whether traffic is accepted for it at all."""
    passthrough: bool = False
    """TLS that is left to the backend."""

    @property
    def transport(self) -> str:
        return "UDP" if self.protocol == "UDP" else "TCP"

    @property
    def http(self) -> bool:
        """Whether it takes requests; otherwise whole connections or datagrams."""
        return self.protocol in ("HTTP", "HTTPS")


class Gateway(msgspec.Struct, frozen=True):
    key: Key
    addresses: tuple[str, ...]
    """What its proxy binds."""
    listeners: tuple[Listener, ...]
    accepted: Condition

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)
