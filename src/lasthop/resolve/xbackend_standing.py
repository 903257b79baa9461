"""How an XBackend stands with one Gateway that routes lead from."""

from __future__ import annotations

from lasthop.api.backends import EXTERNAL_HOSTNAME, XBackend
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.plan import reasons
from lasthop.plan.condition import Condition, false, true
from lasthop.plan.tls import BackendTLS, HopTLS, Plaintext, Refused
from lasthop.plan.upstream import Hop
from lasthop.resolve.backends import xbackend_refusal
from lasthop.resolve.gateways import age
from lasthop.resolve.policies.backend_tls import spoken
from lasthop.resolve.policies.standing import degraded
from lasthop.resolve.policies.validation import verdict
from lasthop.resolve.reach import REACH
from lasthop.resolve.xbackends import flaw, shown_certificate
from lasthop.store.graph import Graph, query
from lasthop.store.store import read

MAX_ANCESTORS = 32


def hops(g: Graph, key: Key) -> tuple[Hop, ...]:
    """Every hop to it, from whichever Gateway."""
    return tuple(sorted(REACH.of(g, key)))


@query
def gateways(g: Graph, key: Key) -> tuple[Key, ...]:
    """Those that reach it, as far as its status has room. One for which there is none uses it all the same."""
    obj = read(g, key, XBackend)
    reached = sorted({hop.gateway for hop in hops(g, key)}, key=lambda gateway: age(g, gateway))
    foreign = sum(1 for entry in obj.status.ancestors if entry.controller_name != CONTROLLER_NAME) if obj else 0
    return tuple(reached[: max(0, MAX_ANCESTORS - foreign)])


@query
def conditions(g: Graph, key: Key, gateway: Key) -> tuple[Condition, ...]:
    """Accepted only if every route's way of speaking to it is."""
    resolved = _resolved(g, key)
    own, judged = flaw(g, key), verdict(g, key)
    if own:
        return false(reasons.ACCEPTED, own.reason, own.message), resolved
    if judged and not judged.valid:
        return judged.accepted, resolved
    found = [hop for hop in hops(g, key) if hop.gateway == gateway]
    for hop in found:
        tls = spoken(g, hop)
        # What is wrong with its TLS is said by the TLS itself, with its own reason.
        refused = tls if isinstance(tls, Refused) else xbackend_refusal(g, hop)
        if refused:
            return false(reasons.ACCEPTED, refused.reason, refused.message), resolved
    manners = [spoken(g, hop) for hop in found]
    accepted = true(reasons.ACCEPTED, "; ".join(warnings(g, key, manners)))
    waiver = next((tls.waiver for tls in manners if isinstance(tls, BackendTLS) and tls.waiver), None)
    return (accepted, resolved, degraded(waiver)) if waiver else (accepted, resolved)


def warnings(g: Graph, key: Key, manners: list[HopTLS]) -> tuple[str, ...]:
    obj, judged = read(g, key, XBackend), verdict(g, key)
    found = [*judged.warnings, *judged.notes] if judged else []
    if obj and obj.spec.type == EXTERNAL_HOSTNAME and any(isinstance(tls, Plaintext) for tls in manners):
        found.append(f"nothing verifies that {obj.spec.external_hostname.hostname} is who answers: there is no TLS of ours")
    return tuple(found)


def _resolved(g: Graph, key: Key) -> Condition:
    """Of what its TLS refers to."""
    judged, shown = verdict(g, key), shown_certificate(g, key)
    if judged and not judged.resolved.status:
        return judged.resolved
    return (
        false(reasons.RESOLVED_REFS, shown.reason, shown.message)
        if isinstance(shown, Refused)
        else true(reasons.RESOLVED_REFS)
    )
