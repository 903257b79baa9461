"""Probes hops without traffic, and reports the results as observations (`lasthop audit --probe`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.pki.parse import bare_names
from lasthop.edge.probe.result import CheckOutcome, EndpointResult, ProbeResult, TargetResult
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.plan.observation import MAX_CERTIFICATES, Failure, Health, LeafCertificate
from lasthop.engine.plan.strength import Strength


async def with_probes(
    probe: Callable[[Key], Awaitable[ProbeResult]], hops: Iterable[HopReport], now: float
) -> tuple[HopReport, ...]:
    """Returns the hops, with probe results for those without observations. Each object is probed once."""
    results: dict[Key, dict[tuple[str, str, int], TargetResult]] = {}
    probed = []
    for hop in hops:
        if _untried(hop):
            key = hop.policy or hop.backend
            if key not in results:
                results[key] = {(target.gateway, target.service, target.port): target for target in (await probe(key)).used}
            tried = results[key].get((hop.gateway.path, str(hop.backend), hop.port))
            hop = msgspec.structs.replace(hop, observed=_observed(tried, now)) if tried else hop
        probed.append(hop)
    return tuple(probed)


def _untried(hop: HopReport) -> bool:
    return hop.in_effect not in (None, Strength.PLAINTEXT) and (hop.observed is None or hop.observed.health is Health.UNTRIED)


def _observed(tried: TargetResult, now: float) -> Observed | None:
    if tried.refused or not tried.endpoints:
        return None
    bad = [endpoint for endpoint in tried.endpoints if not endpoint.passes]
    good = len(tried.endpoints) - len(bad)
    failed, succeeded = (now if bad else 0.0), (now if good else 0.0)
    leaves = set(filter(None, map(_leaf, tried.endpoints)))
    return Observed(
        Health.WORKING if not bad else Health.PARTLY_FAILING if good else Health.FAILING,
        failed,
        succeeded,
        failed,
        good,
        len(bad),
        len(bad),
        _failures(bad),
        tuple(sorted(leaves, key=lambda leaf: leaf.not_after)[:MAX_CERTIFICATES]),
        (),
    )


def _failures(endpoints: Iterable[EndpointResult]) -> tuple[Failure, ...]:
    """Groups endpoints by reason."""
    addresses: dict[str, list[str]] = {}
    for endpoint in endpoints:
        addresses.setdefault(_why(endpoint), []).append(endpoint.address)
    return tuple(Failure(why, tuple(failing)) for why, failing in addresses.items())


def _why(endpoint: EndpointResult) -> str:
    check = next(check for check in endpoint.checks if check.state is CheckOutcome.FAIL)
    return f"{check.name}: {check.found}"


def _leaf(endpoint: EndpointResult) -> LeafCertificate | None:
    shown = endpoint.certificate
    if not shown:
        return None
    begin, end = (datetime.fromisoformat(shown[name]).timestamp() for name in ("notBefore", "notAfter"))
    return LeafCertificate(shown["subject"], shown["issuer"], bare_names(shown["names"]), begin, end)
