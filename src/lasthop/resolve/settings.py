"""What the way of running decides: the same objects mean slightly different things on a laptop and in a cluster."""

from __future__ import annotations

from typing import Final, cast

import msgspec

from lasthop.store.graph import Graph

SETTINGS: Final = "settings"
POLICIES_UNKNOWN: Final = "policies-unknown"
POLICIES_DOUBTFUL: Final = "policies-doubtful"
SYSTEM_STORE: Final = "system-store"
CRD_VERSIONS: Final = "crd-versions"


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


def settings(g: Graph) -> Settings:
    return cast(Settings, g.input(SETTINGS) or Settings())
