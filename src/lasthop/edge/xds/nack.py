"""Parses the text of a NACK. Envoy names the clusters and listeners that it rejects; for a route table it gives only the
reason.

    Error adding/updating cluster(s) a: <why>, b: <why>
    Error adding/updating listener(s) l: <why>

The text is a hint, never a proof, because it quotes texts of users. A wrong hint costs one more round, in which the real
culprit is rejected again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

_HEAD: Final = re.compile(r"^Error adding/updating (?:cluster|listener)\(s\) ")
_CUT_SHORT: Final = "...(truncated)"
_CONSTRAINT: Final = "Proto constraint validation failed"
_LONGEST: Final = 500
_ENVIRONMENT: Final = re.compile(r"cannot bind|Address already in use|Permission denied", re.IGNORECASE)


def reasons(detail: str, names: Iterable[str]) -> Mapping[str, str] | None:
    """Returns the reason for each resource in the text; None if the text names no resource."""
    head = _HEAD.match(detail)
    if head is None or detail.endswith(_CUT_SHORT):  # resources after the cut are rejected too
        return None
    places = sorted((place, name) for name in names if (place := _place(detail, head.end(), name)) is not None)
    if not places:
        return None
    ends = [place for place, _ in places[1:]] + [len(detail)]
    return {name: detail[place + len(name) + 2 : end].rstrip(", \n") for (place, name), end in zip(places, ends, strict=True)}


def summary(reason: str) -> str:
    """Returns the part of a reason that the author of the rejected part may see. If a constraint fails, Envoy quotes the whole
    resource before the constraint, and a route table includes other tenants' routes."""
    _, constraint, violation = reason.rpartition(_CONSTRAINT)
    return (constraint + violation)[:_LONGEST]


def is_environment(reason: str) -> bool:
    """Returns whether the host is the cause, for example a port in use, and not the configuration."""
    return bool(_ENVIRONMENT.search(reason))


def _place(detail: str, start: int, name: str) -> int | None:
    if detail.startswith(f"{name}: ", start):
        return start
    match = re.compile(rf"(?:, |\n){re.escape(name)}: ").search(detail, start)
    return match.end() - len(name) - 2 if match else None
