"""The context of a verdict: the policies that do not apply, the endpoints, and the observed health.

It is computed on demand, without its own node in the graph, because it changes independently of the verification
(`verdict.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.core import AnyService
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key
from lasthop.engine.plan.observation import LeafCertificate
from lasthop.engine.plan.upstream import Hop, Protocol
from lasthop.engine.resolve.backends.backends import endpoints, missing_endpoints
from lasthop.engine.resolve.hops.observed import PortState, hop_state, port_states
from lasthop.engine.resolve.policies.targets import WHOLE, TargetClaim, claims, port_winner, rule_of
from lasthop.engine.resolve.settings import OBSERVES
from lasthop.engine.store.graph import Graph
from lasthop.engine.store.store import read


class LostBy(StrEnum):
    NO_SUCH_PORT = "no such port"
    """The policy names a port that the Service does not have."""
    SECTION = "section"
    """The policy names the whole Service, and the winner names the port."""
    AGE = "age"
    """The winner has the same target and is older, or equally old and first by name."""


class Loser(msgspec.Struct, frozen=True):
    """A policy that names the Service of a hop but does not apply to its port."""

    policy: Key
    rule: LostBy
    section: str = WHOLE
    """The port that the policy names."""
    winner: TargetClaim | None = None
    precedence: str = ""
    """For AGE: why the winner takes precedence, for example `is older`."""


class HopContext(msgspec.Struct, frozen=True):
    endpoints: tuple[str, ...]
    no_endpoints: str
    """Why the backend has no endpoints."""
    observed: PortState | None
    """The state over all protocols of the port; None if nothing observes it."""
    certificates: tuple[LeafCertificate, ...] = ()
    """Certificates that the backend presented, the first to expire first."""


def hop_context(g: Graph, hop: Hop) -> HopContext:
    addresses = endpoints(g, hop.backend, hop.port, hop.protocol.transport).endpoints
    shown, why = (
        tuple(f"{address.address}:{address.port}" for address in addresses),
        "" if addresses else _no_endpoints(g, hop),
    )
    if not OBSERVES.of(g):
        return HopContext(shown, why, None)
    protocols = [p for p in Protocol if p.policed == hop.protocol.policed and p.transport == hop.protocol.transport]
    hops = [hop._replace(protocol=protocol) for protocol in protocols]
    (state,) = port_states(g, hops)
    leaves = {leaf for protocol_hop in hops for leaf in hop_state(g, *protocol_hop).certificates}
    return HopContext(shown, why, state, tuple(sorted(leaves, key=lambda leaf: leaf.not_after)))


def _no_endpoints(g: Graph, hop: Hop) -> str:
    if hop.backend.kind == XBACKEND:
        return "its selector matches no ready endpoint"
    return missing_endpoints(g, hop.backend, hop.port, hop.protocol.transport) or "it is scaled to zero"


def losers(g: Graph, backend: Key, port_number: int) -> Iterator[Loser]:
    """Yields the policies that name the Service but do not apply to this port. Policies cannot name an XBackend."""
    service = read(g, backend, AnyService) if backend.kind in SERVICE_GROUPS else None
    port = service.port(port_number) if service else None
    if service is None or port is None:
        return
    winner, names = port_winner(g, backend, port.name), {service_port.name for service_port in service.spec.ports}
    for claim in claims(g, backend):
        if winner is None or claim.policy != winner.policy:
            for section in claim.sections:
                if section not in (WHOLE, *names):
                    yield Loser(claim.policy, LostBy.NO_SUCH_PORT, section)
                elif winner and section in (WHOLE, port.name):
                    yield _lost(claim, winner, section, port.name)


def _lost(claim: TargetClaim, winner: TargetClaim, section: str, port: str) -> Loser:
    if section == WHOLE and port in winner.sections and port != WHOLE:
        return Loser(claim.policy, LostBy.SECTION, section, winner)
    return Loser(claim.policy, LostBy.AGE, section, winner, rule_of(winner.age, claim.age))
