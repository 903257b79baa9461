"""Judges whether an endpoint fails, as seen by one proxy. Hysteresis keeps verdicts from flapping with single connections.

    UNTRIED ──success──> WORKING ──2 failures in a row, without a success for HOLD──> FAILING ──success──> WORKING
       └───────failures for FIRST_HOLD, and never a success───────────────────────────^   (the more often, the later)

Without evidence for EVIDENCE_EXPIRY_SECONDS it becomes UNTRIED again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.engine.plan.observation import EndpointSeen, Health

HOLD: Final = 5.0
"""Seconds for which an endpoint that has worked must fail, long enough to read successes in between from Envoy's counters."""
FIRST_HOLD: Final = 1.5
"""Seconds for which an endpoint without a known success must fail."""
RECOVERY: Final = 10.0
"""Seconds without a failure until an endpoint counts as working again after repeated failures. Doubled each time."""
LONGEST_RECOVERY: Final = 300.0
RECOVERY_RESET_SECONDS: Final = 900.0
"""Seconds without a new verdict after which earlier recoveries no longer count."""
EVIDENCE_EXPIRY_SECONDS: Final = 1800.0
"""Seconds after which the last connection is too old to be evidence."""


class EndpointVerdict(msgspec.Struct, frozen=True):
    health: Health = Health.UNTRIED
    since: float = 0.0
    recoveries: int = 0
    """The number of recent recoveries."""
    changed: float = 0.0


NONE: Final = EndpointVerdict()


def next_verdict(
    old: EndpointVerdict, seen: EndpointSeen, *, hop_success: float, active: bool, now: float
) -> tuple[EndpointVerdict, float | None]:
    """Returns the verdict, and the time to judge again if no new evidence arrives before.

    All evidence is from one configuration of the hop. `hop_success` is the time of the last response of any endpoint under it.
    `active`: a request or stream is in progress, such as a WebSocket that lasts for days.
    """
    failed = seen.in_a_row > 0
    last = max(seen.last_failure if failed else 0.0, seen.last_success, 0.0)
    if not last:
        return NONE, None
    if now - last >= EVIDENCE_EXPIRY_SECONDS:
        return (old, now + EVIDENCE_EXPIRY_SECONDS) if active and not failed and old.health is Health.WORKING else (NONE, None)
    expiry = last + EVIDENCE_EXPIRY_SECONDS
    if not failed:
        return _works(old, seen, now, expiry)
    has_worked = seen.last_success > 0 or old.health is Health.WORKING or hop_success > 0
    return _fails(old, seen, has_worked, now, expiry)


def _fails(
    old: EndpointVerdict, seen: EndpointSeen, has_worked: bool, now: float, expiry: float
) -> tuple[EndpointVerdict, float | None]:
    """`has_worked`: the endpoint, or another one of the hop, has worked."""
    if old.health is Health.FAILING:
        return old, expiry
    if has_worked and seen.in_a_row < 2:
        return (old if old.health is Health.WORKING else NONE), expiry
    hold = HOLD if has_worked else FIRST_HOLD
    if now - seen.failing_since < hold:
        return old, seen.failing_since + hold
    recoveries = old.recoveries if now - old.changed < RECOVERY_RESET_SECONDS else 0
    return EndpointVerdict(Health.FAILING, seen.failing_since, recoveries, now), expiry


def _works(old: EndpointVerdict, seen: EndpointSeen, now: float, expiry: float) -> tuple[EndpointVerdict, float | None]:
    if old.health is Health.WORKING:
        return old, expiry
    if old.health is not Health.FAILING:
        return EndpointVerdict(Health.WORKING, seen.last_success, old.recoveries, now), expiry
    recovery = min(LONGEST_RECOVERY, RECOVERY * 2 ** (old.recoveries - 1)) if old.recoveries else 0.0
    if now - seen.last_failure < recovery:
        return old, seen.last_failure + recovery
    return EndpointVerdict(Health.WORKING, seen.last_success, min(old.recoveries + 1, 10), now), expiry
