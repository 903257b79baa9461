"""Declares inputs other than objects, and settings of the runtime, whose defaults differ between a folder and a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from lasthop.base.api.bundle import CrdVersions
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.engine.plan.knowledge import Unknown
from lasthop.engine.plan.observation import HopState
from lasthop.engine.plan.profile import AccessLog
from lasthop.engine.plan.proxy import ProxyState
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.plan.verdict import HopVerification
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.sources import Input


class Settings(msgspec.Struct, frozen=True):
    default_address: str = "0.0.0.0"
    """Address that a Gateway without `spec.addresses` binds."""
    host_network: bool = True
    """Gateways share the host's ports, so two can want the same one."""
    external_names: bool = True
    """ExternalName Services may be backends. Off on Kubernetes: the author of a Service could point the gateway at
    anything (CVE-2021-25740)."""

    access_log: AccessLog = AccessLog.FAILURES
    """Default for Gateways whose profile does not set it."""
    pods: bool = False
    """Label selectors select Pods; in a folder, they select handwritten EndpointSlices."""


SETTINGS: Final = Input[Settings]("settings")
POLICIES_UNKNOWN: Final = Input[str, Unknown]("policies-unknown")
"""Why policies are unknown, by namespace (empty: all namespaces). `PolicyMemory` sets this and the next input."""
ABSENCE_PROVEN: Final = Input[Key, int, bool]("absence-proven")
"""Set for ports of Services that may be plaintext although policies are unknown."""
HELD: Final = Input[Key, int, Strength, HopVerification]("held")
"""The last verification of a backend's port at each strength."""
SYSTEM_STORE: Final = Input[SystemStore]("system-store")
CRD_VERSIONS: Final = Input[CrdVersions]("crd-versions")
ABSENT_KIND: Final = Input[str, bool]("absent-kind")
"""Set for kinds that the API server does not serve: references to them have an unknown kind."""
PROXY: Final = Input[Key, ProxyState]("proxy")
INFRASTRUCTURE: Final = Input[Key, Infrastructure]("infrastructure")
OBSERVED: Final = Input[Key, Key, int, str, Mapping[Protocol, HopState]]("observed")
"""Observed states by protocol, for each Gateway, backend, port and configuration (`Connection.config`)."""

OBSERVES: Final = Input[bool]("observes")
"""Set if proxies report observations, so that a missing observation means that no connection was tried."""

IN_CLUSTER: Final = Settings(host_network=False, external_names=False, pods=True)


def set_absent(g: Graph, kinds: Collection[str]) -> None:
    """Sets the complete list of kinds that the API server does not serve."""
    for kind in KINDS:
        ABSENT_KIND.set(g, kind in kinds or None, kind)


def set_observed(g: Graph, hop: Hop, config: str, state: HopState | None) -> bool:
    """Sets the observed state of a hop under one configuration; returns whether it changed."""
    at = (hop.gateway, hop.backend, hop.port, config)
    other_states = {
        protocol: observed for protocol, observed in (OBSERVED.peek(g, *at) or {}).items() if protocol is not hop.protocol
    }
    return OBSERVED.set(g, other_states | ({hop.protocol: state} if state else {}) or None, *at)


def installed(g: Graph, kind: str) -> bool:
    return not ABSENT_KIND.of(g, kind)


def settings(g: Graph) -> Settings:
    return SETTINGS.of(g) or Settings()
