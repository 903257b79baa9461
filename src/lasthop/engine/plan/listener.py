"""Gateways, ListenerSets and their listeners as they will be served."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.policies import LocalObjectReference
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.infrastructure import RequestedAddresses
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.routing import ExternalAuth

MAX_AUTH: Final = 4
"""Servers that one listener may ask before routing. Each has a place in every listener of Envoy, so no edit drains one."""


class ClientCertificates(msgspec.Struct, frozen=True):
    """What is asked of the certificates that clients show."""

    cas: tuple[tuple[str, LocalObjectReference], ...]
    """(namespace, reference) of what holds the trust anchors."""
    required: bool = True
    """Otherwise clients without a valid certificate are accepted too."""


class ListenerPlan(msgspec.Struct, frozen=True):
    owner: Key
    """The Gateway or ListenerSet that has it in its spec; names are unique only there."""
    name: str
    port: int
    protocol: str
    hostname: str
    """Empty: every hostname."""
    table: str
    """Name of its route table: HTTP listeners of one port share one, every other listener has its own."""
    certificates: tuple[Key, ...] = ()
    clients: ClientCertificates | None = None
    """None: clients are not asked for a certificate."""
    conditions: tuple[Condition, ...] = ()
    """All but Programmed, which depends on the proxy."""
    supported_kinds: tuple[str, ...] = ()
    served: bool = True
    """Whether traffic is accepted for it at all."""
    conflicted: bool = False
    """Another listener has its port or its name."""
    misnamed: bool = False
    """Its hostname is not one, so there is no name to keep."""
    passthrough: bool = False
    """TLS that is left to the backend."""
    auth: tuple[ExternalAuth, ...] = ()
    """Servers that are asked about each request, in this order, before a route is chosen."""

    @property
    def shut(self) -> bool:
        """Not served, and its name is still its own: a wider listener would answer without what this one asks for."""
        return not self.served and not self.conflicted and not self.misnamed

    @property
    def transport(self) -> str:
        return "UDP" if self.protocol == "UDP" else "TCP"

    @property
    def http(self) -> bool:
        """Whether it takes requests; otherwise whole connections or datagrams."""
        return self.protocol in ("HTTP", "HTTPS")


class GatewayPlan(msgspec.Struct, frozen=True):
    key: Key
    addresses: tuple[str, ...]
    """What its proxy binds."""
    listeners: tuple[ListenerPlan, ...]
    """Its own and those of its ListenerSets, in the order of precedence."""
    accepted: Condition
    requested: RequestedAddresses = RequestedAddresses()


class ListenerSetPlan(msgspec.Struct, frozen=True):
    key: Key
    gateway: Key
    """Whose proxy serves it."""
    listeners: tuple[ListenerPlan, ...]
    """Empty unless the Gateway allows the set."""
    accepted: Condition


class Holder(msgspec.Struct, frozen=True):
    """What a route's parentRef can name: a Gateway or a ListenerSet, with its own listeners only."""

    key: Key
    gateway: Key
    listeners: tuple[ListenerPlan, ...]
    problem: Problem | None = None
    """Why it takes no routes at all."""
