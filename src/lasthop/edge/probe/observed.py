"""What a probe has seen of a hop, as the audit shows what proxies have seen."""

from __future__ import annotations

from datetime import datetime

from lasthop.base.pki.parse import bare_names
from lasthop.edge.probe.result import EndpointResult, State, TargetResult
from lasthop.engine.outputs.audit.hops import Observed
from lasthop.engine.plan.observation import MAX_CERTIFICATES, Failure, Health, LeafCertificate


def observed(tried: TargetResult, now: float) -> Observed | None:
    """Returns what a probe has seen of a hop; None if nothing was tried."""
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
    check = next(each for each in endpoint.checks if each.state is State.FAIL)
    return f"{check.name}: {check.found}"


def _leaf(endpoint: EndpointResult) -> LeafCertificate | None:
    shown = endpoint.certificate
    if not shown:
        return None
    begin, end = (datetime.fromisoformat(shown[name]).timestamp() for name in ("notBefore", "notAfter"))
    return LeafCertificate(shown["subject"], shown["issuer"], bare_names(shown["names"]), begin, end)
