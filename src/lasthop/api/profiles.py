"""GatewayProfile: the operator's say about a Gateway, referred to by its class or by its own `infrastructure`."""

from __future__ import annotations

from lasthop.api.meta import Object, StringMap, Struct

GROUP = "lasthop.dev"


class Resources(Struct, frozen=True):
    requests: StringMap = StringMap()
    limits: StringMap = StringMap()


class ServiceSettings(Struct, frozen=True):
    type: str = "LoadBalancer"
    external_traffic_policy: str = ""
    load_balancer_class: str = ""


class ProxySettings(Struct, frozen=True):
    """How a Gateway's proxies run."""

    replicas: int | None = None
    """None leaves the number to whoever scales the Deployment; it starts with one."""
    resources: Resources = Resources()
    service: ServiceSettings = ServiceSettings()
    drain_seconds: int = 30
    """How long a Pod that is to end may finish its requests."""
    image: str = ""
    """Empty: the controller's own."""


class GatewayProfileSpec(Struct, frozen=True):
    proxy: ProxySettings = ProxySettings()


class GatewayProfile(Object, frozen=True):
    spec: GatewayProfileSpec = GatewayProfileSpec()
