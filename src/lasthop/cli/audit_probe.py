"""Tries the backends that have had no traffic, for `lasthop audit --probe`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.pki.parse import bare_names
from lasthop.cli.views.command_view import View
from lasthop.edge.probe.result import CheckState, EndpointResult, TargetResult
from lasthop.engine.outputs.audit.hops import HopReport, Manner, Observed
from lasthop.engine.plan.observation import MAX_CERTIFICATES, Failure, Health, LeafCertificate

_TRIED = (Manner.VERIFIED, Manner.PINNED_ONLY, Manner.WAIVED)


async def with_probes(view: View, hops: Iterable[HopReport], now: float) -> tuple[HopReport, ...]:
    """Returns the hops; those of which nothing is known have been tried. Each object is probed once."""
    results: dict[Key, dict[tuple[str, str, int], TargetResult]] = {}
    found = []
    for hop in hops:
        if hop.manner in _TRIED and (hop.observed is None or hop.observed.health is Health.UNTRIED):
            key = hop.policy or hop.backend
            if key not in results:
                probed = await view.probe(key, "")
                results[key] = {(each.gateway, each.service, each.port): each for each in probed.used}
            tried = results[key].get((hop.gateway.path, str(hop.backend), hop.port))
            hop = msgspec.structs.replace(hop, observed=_observed(tried, now)) if tried else hop
        found.append(hop)
    return tuple(found)


def _observed(tried: TargetResult, now: float) -> Observed | None:
    if tried.refused or not tried.endpoints:
        return None
    bad = [each for each in tried.endpoints if not each.passes]
    good = len(tried.endpoints) - len(bad)
    health = Health.WORKING if not bad else Health.PARTLY_FAILING if good else Health.FAILING
    words: dict[str, list[str]] = {}
    for each in bad:
        words.setdefault(_why(each), []).append(each.address)
    leaves = {leaf for each in tried.endpoints if (leaf := _leaf(each))}
    return Observed(
        health,
        now if bad else 0.0,
        now if good else 0.0,
        now if bad else 0.0,
        good,
        len(bad),
        len(bad),
        tuple(Failure(why, tuple(addresses)) for why, addresses in words.items()),
        tuple(sorted(leaves, key=lambda leaf: leaf.not_after)[:MAX_CERTIFICATES]),
        (),
    )


def _why(endpoint: EndpointResult) -> str:
    check = next(each for each in endpoint.checks if each.state is CheckState.FAIL)
    return f"{check.name}: {check.found}"


def _leaf(endpoint: EndpointResult) -> LeafCertificate | None:
    shown = endpoint.certificate
    if not shown:
        return None
    begin, end = (datetime.fromisoformat(shown[name]).timestamp() for name in ("notBefore", "notAfter"))
    return LeafCertificate(shown["subject"], shown["issuer"], bare_names(shown["names"]), begin, end)
