"""Builds cases from short descriptions."""

from __future__ import annotations

from typing import Any

from lasthop_judge.certificates import Recipe
from lasthop_judge.model import Case, CasePort, CaseService, Expected, Policy, Requirement, Serving

PASSES, REFUSED, REFUSED_5XX, PLAINTEXT, IGNORED = (
    Expected.PASSES,
    Expected.REFUSED,
    Expected.REFUSED_5XX,
    Expected.PLAINTEXT,
    Expected.IGNORED,
)


def serves(certificate: Recipe | None, *chain: Recipe, **settings: Any) -> Serving:
    return Serving(certificate, chain, **settings)


def neutral(serving: Serving) -> dict[str, Any]:
    """Returns a port for plaintext cases. Implementations may derive a protocol from the number 443 or the name https."""
    return {"services": (CaseService(ports=(CasePort("web", 8080, serving),)),), "port": "web"}


def shown(
    id: str, title: str, requirement: Requirement, expect: Expected, certificate: Recipe, *chain: Recipe, **settings: Any
) -> Case:
    """Returns a case about the certificate that the backend presents."""
    policy = {key: settings.pop(key) for key in ("hostname", "sans", "refs") if key in settings}
    return Case(id, title, requirement, expect, serves(certificate, *chain), (Policy(**policy),), **settings)
