"""Short ways to write a case."""

from __future__ import annotations

from typing import Any

from lasthop_judge.certificates import Recipe
from lasthop_judge.model import Case, Expect, Policy, Requirement, Serving

PASSES, REFUSED, REFUSED_5XX, PLAINTEXT, IGNORED = (
    Expect.PASSES,
    Expect.REFUSED,
    Expect.REFUSED_5XX,
    Expect.PLAINTEXT,
    Expect.IGNORED,
)


def serves(certificate: Recipe | None, *chain: Recipe, **settings: Any) -> Serving:
    return Serving(certificate, chain, **settings)


def shown(
    id: str, title: str, requirement: Requirement, expect: Expect, certificate: Recipe, *chain: Recipe, **settings: Any
) -> Case:
    """A case about the certificate that the backend shows."""
    policy = {key: settings.pop(key) for key in ("hostname", "sans", "refs") if key in settings}
    return Case(id, title, requirement, expect, serves(certificate, *chain), (Policy(**policy),), **settings)
