"""What is known of a Gateway's proxy."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.engine.plan.listener import ListenerPlan


class ProxyState(msgspec.Struct, frozen=True):
    connected: bool = False
    ports: frozenset[int] = frozenset()
    """TCP ports whose current listener the proxy has acknowledged."""
    problem: str = ""
    """Why there is no proxy, or what it refused."""
    udp_ports: frozenset[int] = frozenset()

    @classmethod
    def at(cls, ports: Iterable[tuple[int, str]], connected: bool = True, problem: str = "") -> ProxyState:
        """Returns the state of a proxy that has acknowledged these ports of TCP and UDP."""
        tcp, udp = (frozenset(port for port, found in ports if found == transport) for transport in ("TCP", "UDP"))
        return cls(connected, tcp, problem, udp)

    @classmethod
    def serving(cls, listeners: Iterable[ListenerPlan]) -> ProxyState:
        """Returns the state of a proxy that has acknowledged them all."""
        return cls.at({(listener.port, listener.transport) for listener in listeners})

    def serves(self, port: int, transport: str) -> bool:
        return port in (self.udp_ports if transport == "UDP" else self.ports)
