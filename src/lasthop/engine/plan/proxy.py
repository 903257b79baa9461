"""The state of a Gateway's proxy: whether it is connected, and which ports it serves."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lasthop.engine.plan.listener import ListenerPlan


class ProxyState(msgspec.Struct, frozen=True):
    connected: bool = False
    ports: frozenset[int] = frozenset()
    """TCP ports whose current listener the proxy has acknowledged."""
    problem: str = ""
    """Why no proxy is connected, or what it refused."""
    udp_ports: frozenset[int] = frozenset()

    @classmethod
    def acknowledged(cls, ports: Iterable[tuple[int, str]], connected: bool = True, problem: str = "") -> ProxyState:
        """Returns the state of a proxy that has acknowledged these TCP and UDP ports."""
        tcp, udp = (frozenset(port for port, protocol in ports if protocol == transport) for transport in ("TCP", "UDP"))
        return cls(connected, tcp, problem, udp)

    @classmethod
    def serving(cls, listeners: Iterable[ListenerPlan]) -> ProxyState:
        """Returns the state of a proxy that has acknowledged all listeners."""
        return cls.acknowledged({(listener.port, listener.transport) for listener in listeners})

    def serves(self, port: int, transport: str) -> bool:
        return port in (self.udp_ports if transport == "UDP" else self.ports)
