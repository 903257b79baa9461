"""What the way of running decides: the same objects mean slightly different things on a laptop and in a cluster."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.api.meta import Key, StringMap
from lasthop.plan.infrastructure import Infrastructure
from lasthop.plan.proxy import ProxyState
from lasthop.plan.tls import SystemStore
from lasthop.store.graph import Graph
from lasthop.store.sources import Input


class Settings(msgspec.Struct, frozen=True):
    default_address: str = "0.0.0.0"
    """What a Gateway without addresses binds."""
    host_network: bool = True
    """Gateways share the host's ports, so two can want the same one."""
    external_names: bool = True
    """ExternalName Services may be backends. Off on Kubernetes: whoever may write a Service could point the gateway at
    anything (CVE-2021-25740)."""

    pods: bool = False
    """Backends are Pods, which labels select; elsewhere whoever writes a selector writes the EndpointSlices too."""


IN_CLUSTER: Final = Settings(host_network=False, external_names=False, pods=True)
SETTINGS = Input[Settings]("settings")
POLICIES_UNKNOWN = Input[bool]("policies-unknown")
POLICIES_DOUBTFUL = Input[bool]("policies-doubtful")
SYSTEM_STORE = Input[SystemStore]("system-store")
CRD_VERSIONS = Input[StringMap]("crd-versions")
PROXIES = Input[Key, ProxyState]("proxy")
INFRASTRUCTURE = Input[Key, Infrastructure]("infrastructure")
"""Both by Gateway."""


def settings(g: Graph) -> Settings:
    return SETTINGS.of(g) or Settings()
