"""What comes in besides objects, and what the way of running decides: the same objects mean slightly different things on a
laptop and in a cluster."""

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
    """What a Gateway without addresses binds."""
    host_network: bool = True
    """Gateways share the host's ports, so two can want the same one."""
    external_names: bool = True
    """ExternalName Services may be backends. Off on Kubernetes: the author of a Service could point the gateway at
    anything (CVE-2021-25740)."""

    access_log: AccessLog = AccessLog.FAILURES
    """Of Gateways whose profile says nothing about it."""
    pods: bool = False
    """Backends are Pods, which labels select; elsewhere the author of a selector writes the EndpointSlices too."""


SETTINGS: Final = Input[Settings]("settings")
POLICIES_UNKNOWN: Final = Input[str, Unknown]("policies-unknown")
"""By namespace, empty for all of them: why its policies are not known. `PolicyMemory` sets this and the next."""
ABSENCE_PROVEN: Final = Input[Key, int, bool]("absence-proven")
"""Set for a port of a Service that may be plaintext although policies are unknown."""
HELD: Final = Input[Key, int, Strength, HopVerification]("held")
"""How a port of a Service, or an XBackend, was verified when it was last verified as strongly as that."""
SYSTEM_STORE: Final = Input[SystemStore]("system-store")
CRD_VERSIONS: Final = Input[CrdVersions]("crd-versions")
ABSENT_KIND: Final = Input[str, bool]("absent-kind")
"""Set for a kind that the API server does not serve, so that references to it are of an unknown kind."""
PROXY: Final = Input[Key, ProxyState]("proxy")
INFRASTRUCTURE: Final = Input[Key, Infrastructure]("infrastructure")
OBSERVED: Final = Input[Key, Key, int, str, Mapping[Protocol, HopState]]("observed")
"""By Gateway, backend, port and configuration (`Connection.config`): what proxies have seen, by protocol."""

OBSERVES: Final = Input[bool]("observes")
"""Set where proxies tell what they see, so that what has not been seen has not been tried."""

IN_CLUSTER: Final = Settings(host_network=False, external_names=False, pods=True)


def set_absent(g: Graph, kinds: Collection[str]) -> None:
    """Says which kinds the API server does not serve: all of them, each time."""
    for kind in KINDS:
        ABSENT_KIND.set(g, kind in kinds or None, kind)


def set_observed(g: Graph, hop: Hop, config: str, state: HopState | None) -> bool:
    """Sets what proxies have seen of a hop under one configuration; returns whether that is news."""
    at = (hop.gateway, hop.backend, hop.port, config)
    others = {protocol: seen for protocol, seen in (OBSERVED.peek(g, *at) or {}).items() if protocol is not hop.protocol}
    return OBSERVED.set(g, others | ({hop.protocol: state} if state else {}) or None, *at)


def installed(g: Graph, kind: str) -> bool:
    return not ABSENT_KIND.of(g, kind)


def settings(g: Graph) -> Settings:
    return SETTINGS.of(g) or Settings()
