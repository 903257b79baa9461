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
            result = results[key].get((hop.gateway.path, str(hop.backend), hop.port))
            hop = msgspec.structs.replace(hop, observed=_observed(result, now)) if result else hop
        probed.append(hop)
    return tuple(probed)


def _untried(hop: HopReport) -> bool:
    return hop.in_effect not in (None, Strength.PLAINTEXT) and (hop.observed is None or hop.observed.health is Health.UNTRIED)


def _observed(result: TargetResult, now: float) -> Observed | None:
    if result.refused or not result.endpoints:
        return None
    bad = [endpoint for endpoint in result.endpoints if not endpoint.passes]
    good = len(result.endpoints) - len(bad)
    failed, succeeded = (now if bad else 0.0), (now if good else 0.0)
    leaves = set(filter(None, map(_leaf, result.endpoints)))
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
        addresses.setdefault(_reason(endpoint), []).append(endpoint.address)
    return tuple(Failure(reason, tuple(endpoints)) for reason, endpoints in addresses.items())


def _reason(endpoint: EndpointResult) -> str:
    check = next(check for check in endpoint.checks if check.state is CheckOutcome.FAIL)
    return f"{check.name}: {check.found}"


def _leaf(endpoint: EndpointResult) -> LeafCertificate | None:
    certificate = endpoint.certificate
    if not certificate:
        return None
    begin, end = (datetime.fromisoformat(certificate[name]).timestamp() for name in ("notBefore", "notAfter"))
    return LeafCertificate(certificate["subject"], certificate["issuer"], bare_names(certificate["names"]), begin, end)
