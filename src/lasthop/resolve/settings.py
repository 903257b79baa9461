"""What comes in besides objects, and what the way of running decides: the same objects mean slightly different things on a
laptop and in a cluster."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.api.bundle import CrdVersions
from lasthop.api.meta import Key
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
    """ExternalName Services may be backends. Off on Kubernetes: the author of a Service could point the gateway at
    anything (CVE-2021-25740)."""

    pods: bool = False
    """Backends are Pods, which labels select; elsewhere the author of a selector writes the EndpointSlices too."""


SETTINGS: Final = Input[Settings]("settings")
POLICIES_UNKNOWN: Final = Input[bool]("policies-unknown")
"""Set while some input that could hold a policy cannot be read; `PolicyMemory` sets it."""
POLICIES_DOUBTFUL: Final = Input[bool]("policies-doubtful")
"""Some text cannot be read and an older one is in force: what loses its policy now has perhaps not lost it."""
SERVED_PLAINTEXT: Final = Input[Key, int, bool]("served-plaintext")
"""Set for a port of a Service that was served in plaintext while the policies were still all known."""
HAD_POLICY: Final = Input[Key, int, Key]("had-policy")
"""The policy that applied to a port of a Service last."""
SYSTEM_STORE: Final = Input[SystemStore]("system-store")
CRD_VERSIONS: Final = Input[CrdVersions]("crd-versions")
PROXY: Final = Input[Key, ProxyState]("proxy")
INFRASTRUCTURE: Final = Input[Key, Infrastructure]("infrastructure")

IN_CLUSTER: Final = Settings(host_network=False, external_names=False, pods=True)


def settings(g: Graph) -> Settings:
    return SETTINGS.of(g) or Settings()
