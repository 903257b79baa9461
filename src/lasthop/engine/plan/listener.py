"""Gateways, ListenerSets and their listeners, as the proxy serves them."""

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
"""ExternalAuth servers that one listener may call before routing. Every Envoy listener has a slot for each, so that no edit
drains a listener."""


class ClientCertificates(msgspec.Struct, frozen=True):
    """Validation of client certificates at a listener."""

    cas: tuple[tuple[str, LocalObjectReference], ...]
    """(namespace, reference) of each object with trust anchors."""
    required: bool = True
    """False accepts clients without a valid certificate, too."""


class ListenerPlan(msgspec.Struct, frozen=True):
    owner: Key
    """The Gateway or ListenerSet whose spec contains the listener; names are unique only there."""
    name: str
    port: int
    protocol: str
    hostname: str
    """Empty: every hostname."""
    table: str
    """Name of the route table: HTTP listeners of one port share a table, every other listener has its own."""
    certificates: tuple[Key, ...] = ()
    clients: ClientCertificates | None = None
    """None: the listener requests no client certificate."""
    conditions: tuple[Condition, ...] = ()
    """All but Programmed, which depends on the proxy."""
    supported_kinds: tuple[str, ...] = ()
    served: bool = True
    """Whether the listener accepts traffic."""
    conflicted: bool = False
    """Another listener has the same port or name and takes precedence."""
    misnamed: bool = False
    """The hostname is not valid, so no virtual host is reserved for it."""
    passthrough: bool = False
    """The backend terminates TLS."""
    auth: tuple[ExternalAuth, ...] = ()
    """ExternalAuth servers to call for each request, in this order, before a route is chosen."""

    @property
    def closed(self) -> bool:
        """Not served, but its hostname stays reserved: a less specific listener would answer without this one's TLS and
        authentication settings."""
        return not self.served and not self.conflicted and not self.misnamed

    @property
    def transport(self) -> str:
        return "UDP" if self.protocol == "UDP" else "TCP"

    @property
    def http(self) -> bool:
        """Whether the listener routes HTTP requests, not connections or datagrams."""
        return self.protocol in ("HTTP", "HTTPS")


class GatewayPlan(msgspec.Struct, frozen=True):
    key: Key
    addresses: tuple[str, ...]
    """Addresses that the proxy binds."""
    listeners: tuple[ListenerPlan, ...]
    """The listeners of the Gateway and of its ListenerSets, in the order of precedence."""
    accepted: Condition
    requested: RequestedAddresses = RequestedAddresses()


class ListenerSetPlan(msgspec.Struct, frozen=True):
    key: Key
    gateway: Key
    """The Gateway whose proxy serves the ListenerSet."""
    listeners: tuple[ListenerPlan, ...]
    """Empty unless the Gateway allows the set."""
    accepted: Condition


class RouteParent(msgspec.Struct, frozen=True):
    """A Gateway or a ListenerSet as a parent of routes, with its own listeners only."""

    key: Key
    gateway: Key
    listeners: tuple[ListenerPlan, ...]
    problem: Problem | None = None
    """Why no route may attach, if none may."""
