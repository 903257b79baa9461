"""VerificationWaivers: the waived check, its reason and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from lasthop.base.api.meta import Key
from lasthop.base.api.verification import VerificationWaiver
from lasthop.engine.plan import reasons
from lasthop.engine.plan.problem import Problem, invalid_ca_certificate_ref, not_found
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Waiver
from lasthop.engine.resolve.trust.trust import minute
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

WAIVES: Final = {"All": Strength.WAIVED_ALL, "Names": Strength.WAIVED_NAMES, "Expiry": Strength.WAIVED_EXPIRY}
"""The field `waives`, as users write it."""
UNCHECKED: Final = {
    Strength.WAIVED_ALL: "the backend's certificate is not checked",
    Strength.WAIVED_NAMES: "the names in the backend's certificate are not checked",
    Strength.WAIVED_EXPIRY: "the dates of the backend's certificate are not checked",
}
SOON: Final = timedelta(days=7)
"""Warning period before a waiver ends."""


@query
def waiver(g: Graph, key: Key) -> Waiver | Problem:
    """Returns a waiver, or why it is invalid. It is invalid from the second of its expiry."""
    obj = read(g, key, VerificationWaiver)
    if obj is None:
        remedy = "create it in the policy's own namespace, or remove the reference"
        return not_found(reasons.INVALID_CA_CERTIFICATE_REF, key, remedy)
    spec = obj.spec
    expires = moment(spec.expires) if spec.expires else None
    if spec.waives not in WAIVES or (spec.expires and expires is None):
        setting = f"waives {spec.waives!r}" if spec.waives not in WAIVES else f"expires {spec.expires!r}"
        return invalid_ca_certificate_ref(f"{key}: {setting} is not valid", key, remedy="correct it")
    if expires is not None and not g.before(expires):
        remedy = "fix the backend's certificate and remove the reference, or have its owner extend it"
        return Problem(reasons.WAIVER_EXPIRED, f"{key} expired on {minute(expires)}", remedy=remedy, about=(key,))
    created = moment(obj.metadata.creation_timestamp) or 0.0
    return Waiver(key, WAIVES[spec.waives], _one_line(spec.reason), _one_line(spec.owner), expires, created)


def _one_line(text: str) -> str:
    """Joins the lines of a text, for messages."""
    return " ".join(text.split())


def moment(text: str) -> float | None:
    """Parses an RFC 3339 time; None if it is invalid or out of range."""
    try:
        time = datetime.fromisoformat(text.upper())
        return time.astimezone(UTC).timestamp() if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def describe(waiver: Waiver) -> str:
    """Describes a waiver for status, findings and the audit: the missing check, its reason, owner and end."""
    owner = f", {waiver.owner}" if waiver.owner else ""
    until = f"until {minute(waiver.expires)}" if waiver.expires is not None else "without an end"
    return f'{UNCHECKED[waiver.strength]} ({waiver.key}: "{waiver.reason}"{owner}), {until}'
