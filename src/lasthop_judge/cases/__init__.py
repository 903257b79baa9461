"""All cases, by area."""

from __future__ import annotations

from typing import Final

from lasthop_judge.cases import chains, changes, gep4152, names, routes, trust
from lasthop_judge.model import Area, Case

ALL: Final[tuple[Case, ...]] = tuple(
    sorted(
        (*names.CASES, *chains.CASES, *trust.CASES, *routes.CASES, *changes.CASES, *gep4152.CASES),
        key=lambda case: list(Area).index(case.area),
    )
)
