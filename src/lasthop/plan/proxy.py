"""What is known of a Gateway's proxy."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.api.meta import Key
from lasthop.plan.listener import Listener


class ProxyState(msgspec.Struct, frozen=True):
    connected: bool = False
    ports: frozenset[int] = frozenset()
    """TCP ports whose current listener the proxy has acknowledged."""
    udp_ports: frozenset[int] = frozenset()
    problem: str = ""
    """Why there is no proxy, or what it refused."""

    @classmethod
    def serving(cls, listeners: Iterable[Listener]) -> ProxyState:
        """Of a proxy that has acknowledged them all."""
        ports = {(listener.port, listener.transport) for listener in listeners}
        return cls(
            connected=True,
            ports=frozenset(port for port, transport in ports if transport == "TCP"),
            udp_ports=frozenset(port for port, transport in ports if transport == "UDP"),
        )

    def serves(self, port: int, transport: str) -> bool:
        return port in (self.udp_ports if transport == "UDP" else self.ports)


def proxy_input(gateway: Key) -> tuple[str, Key]:
    return ("proxy", gateway)
