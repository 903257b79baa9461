"""Renders the observations of a hop, as `verified 2 s ago, 1,203 handshakes`, beside its required verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.cli.render.report import count
from lasthop.edge.probe.certificate_view import days_left
from lasthop.engine.outputs.audit.hops import HopReport, Observed
from lasthop.engine.outputs.audit.observed import leaves_of, name
from lasthop.engine.plan.observation import Health
from lasthop.engine.plan.strength import Strength

FAILING: Final = "failing"
UNTRIED: Final = "must be verified"
"""Headings that replace that of a verification mode."""
NOTHING: Final = Observed(Health.UNTRIED, 0.0, 0.0, 0.0, 0, 0, 0, (), (), ())
_UNITS: Final = ((86_400, "day", "days"), (3_600, "h", "h"), (60, "min", "min"), (1, "s", "s"))
_VERIFIED: Final = (Strength.VERIFIED, Strength.PINNED_ONLY)


def with_untried(hops: Iterable[HopReport]) -> tuple[HopReport, ...]:
    """Marks hops without observations as not tried. For a gateway that observes its hops."""
    return tuple(hop if hop.observed else msgspec.structs.replace(hop, observed=NOTHING) for hop in hops)


def standing(hop: HopReport) -> str:
    """Returns the heading of a hop: its verification mode, or that connections fail, or that nothing has been verified yet."""
    if hop.observed and hop.observed.health.bad:
        return FAILING
    if hop.observed and hop.observed.health is Health.UNTRIED and hop.in_effect is Strength.VERIFIED:
        return UNTRIED
    return hop.manner


def unverified(hop: HopReport) -> bool:
    """Returns whether the hop requires less than full verification, or full verification was not observed."""
    strength = hop.in_effect
    if strength is None:
        return False
    if strength not in _VERIFIED:
        return True
    return hop.observed is not None and hop.observed.health is not Health.WORKING


def words(hop: HopReport, now: float) -> str:
    """Returns the observations; empty without a running gateway."""
    observed = hop.observed
    if observed is None or hop.refused:
        return ""
    if observed.health is Health.UNTRIED:
        return "never tried"
    if observed.health.bad:
        return _failing(observed, now)
    done = "verified" if hop.in_effect in _VERIFIED else "connected"
    when = f" {ago(now - observed.last_success)} ago" if observed.last_success else ""
    parts = [
        f"{done}{when}",
        count(observed.handshakes, "handshake") if observed.handshakes else "",
        ", ".join(observed.tls_versions),
    ]
    failed = (
        f"; {observed.failed_requests:,} of {count(observed.requests, 'request')} failed" if observed.failed_requests else ""
    )
    return f"{', '.join(filter(None, parts))}{failed}"


def _failing(observed: Observed, now: float) -> str:
    def since(begin: float) -> str:
        return f" since {rfc3339(begin)} ({ago(now - begin)})"

    why = [f"{failure.words}{_where(failure.endpoints)}" for failure in observed.failures]
    why += [f"{endpoint} ejected{since(begin)}" for endpoint, begin in observed.ejected[:3]]
    return f"{observed.health}{since(observed.since) if observed.since else ''}: {'; '.join(why)}"


def shown_certificates(hop: HopReport, now: float) -> Iterator[str]:
    for leaf in leaves_of(hop):
        yield f"shows {name(leaf)}, {days_left(leaf.not_after, now)}"


def document(observed: Observed) -> dict[str, object]:
    def when(moment: float) -> str | None:
        return rfc3339(moment) if moment else None

    return {
        "health": str(observed.health),
        "since": when(observed.since),
        "lastSuccess": when(observed.last_success),
        "lastFailure": when(observed.last_failure),
        "handshakes": observed.handshakes,
        "handshakeFailures": observed.handshake_failures,
        "connectFailures": observed.connect_failures,
        "failures": [
            {"why": failure.words, "endpoints": failure.endpoints, "proxies": failure.proxies} for failure in observed.failures
        ],
        "ejected": [{"endpoint": endpoint, "since": when(since)} for endpoint, since in observed.ejected],
        "certificates": [
            {
                "subject": leaf.subject,
                "issuer": leaf.issuer,
                "names": leaf.names,
                "notBefore": when(leaf.not_before),
                "notAfter": when(leaf.not_after),
            }
            for leaf in observed.certificates
        ],
        "tlsVersions": observed.tls_versions,
        "requests": observed.requests,
        "failedRequests": observed.failed_requests,
    }


def ago(seconds: float) -> str:
    """Returns a time span as `2 s`, `3 min`, `5 h`, `2 days`."""
    whole = max(0, int(seconds))
    size, one, many = next((unit for unit in _UNITS if whole >= unit[0]), _UNITS[-1])
    count = whole // size
    return f"{count} {one if count == 1 else many}"


def _where(endpoints: tuple[str, ...]) -> str:
    shown = ", ".join(filter(None, endpoints[:3]))
    more = f" and {len(endpoints) - 3} more" if len(endpoints) > 3 else ""
    return f" ({shown}{more})" if shown else ""
