"""Defines all goals of the bench. A part that misses a goal exits with status 1."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Final, Literal

from bench.data.rows import ENVOY_GATEWAY, ONE_ROUTE, ROWS, TUNED, TUNED_SAFE

Of = Literal["ours", "ratio", "growth"]


@dataclasses.dataclass(frozen=True)
class Goal:
    of: Of
    """Our own figure, its ratio to the peer's, or its ratio between the largest and the smallest size."""
    limit: float
    from_n: int = 0
    """Sizes below this are shown and not judged, ..."""
    to_n: int = sys.maxsize
    """... and those above this."""
    peer: str = ""
    """Only beside this peer."""
    at_least: bool = False

    def holds_at(self, n: int, peer: str) -> bool:
        return self.from_n <= n <= self.to_n and self.peer in ("", peer)

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit

    def words(self, unit: str) -> str:
        sign = "≥" if self.at_least else "≤"
        if self.of == "ours":
            return f"{sign} {self.limit:g} {unit}"
        return f"{sign} 1/{round(1 / self.limit)}" if self.limit <= 1 / 3 else f"{sign} {self.limit:.4g}"


def _ours(limit: float, to_n: int = sys.maxsize, from_n: int = 0) -> Goal:
    return Goal("ours", limit, from_n, to_n)


def _ratio(limit: float, from_n: int = 0) -> Goal:
    return Goal("ratio", limit, from_n)


def _counted(row: str, **ratios: float) -> dict[tuple[str, str], tuple[Goal, ...]]:
    """Returns the goals of a row of the data plane, in instructions: the highest ratios to others."""
    named = {"tuned": TUNED, "protected": TUNED_SAFE, "envoy_gateway": ENVOY_GATEWAY, "one": ONE_ROUTE}
    goals = tuple(Goal("ratio", limit, peer=named[name]) for name, limit in ratios.items())
    return {("data", f"{ROWS[row].name}: instructions"): goals}


AS_TUNED: Final = 1 / 0.97
"""At least 0.97 of hand-tuned Envoy; small requests pay for protections, so for these of one that has them, too."""
FLAT: Final = Goal("growth", 1.2)
GENTLE: Final = Goal("growth", 1.5)
FEW: Final = 100
"""A small installation: what a process costs before it has anything to do."""
SOME: Final = 1_000
MANY: Final = 5_000
"""The size that goals in multiples of a peer are about: what a peer does with few objects is quick anyway. The largest size
for goals of figures that grow with the size."""

GOALS: Final[Mapping[tuple[str, str], tuple[Goal, ...]]] = {
    ("control", "first start: controller CPU"): (_ours(0.4, FEW), _ratio(0.4, MANY)),
    ("control", "first start: controller RSS"): (_ours(80, FEW),),
    ("control", "first start: effective"): (_ours(8, MANY),),
    ("control", "restart: controller RSS"): (_ours(80, FEW),),
    ("control", "restart: controller CPU"): (_ours(0.4, FEW), _ours(0.9, SOME, SOME), _ratio(1 / 4, MANY)),
    ("control", "restart: serves proxies after"): (_ours(4, MANY),),
    ("control", "controller RSS after all edits"): (_ratio(0.5, MANY),),
    ("control", "policy edit: controller CPU"): (_ours(6), FLAT),
    ("control", "policy edit: effective"): (_ours(15), FLAT),
    ("control", "CA edit: effective"): (_ours(30), GENTLE),
    ("control", "wrong CA of 100 policies put right: effective"): (_ours(0.06, FEW), _ours(0.1, SOME, SOME)),
    ("control", "CA of 100 policies: effective"): (_ours(0.2),),
    ("control", "CA of 100 policies: failed requests"): (_ours(0),),
    ("control", "CA of all policies: effective"): (_ours(5, MANY),),
    ("control", "CA of all policies: failed requests"): (_ours(0),),
    ("control", "burst of 100 policy edits: all effective"): (_ours(1),),
    ("control", "endpoint edit: xDS bytes that are not endpoints"): (_ours(0),),
    ("control", "endpoint edit: effective"): (_ours(30), GENTLE),
    ("control", "unreferenced ConfigMap: xDS bytes"): (_ours(0),),
    ("control", "100 proxies: policy edit received by all"): (_ours(100),),
    **_counted("1k-h1", protected=AS_TUNED, envoy_gateway=0.9),
    **_counted("1k-h2", protected=AS_TUNED, envoy_gateway=0.9),
    **_counted("1m", tuned=AS_TUNED, envoy_gateway=1),
    **_counted("1m-h2", tuned=AS_TUNED, envoy_gateway=1),
    **_counted("connect", tuned=AS_TUNED, envoy_gateway=1),
    **_counted("grpc", protected=AS_TUNED, envoy_gateway=1),
    **_counted("websocket", tuned=AS_TUNED, envoy_gateway=1),
    **_counted("stream", tuned=AS_TUNED, envoy_gateway=1),
    **_counted("routes", one=1.03),
    ("data", "1 KiB request"): (_ours(144_000),),
    ("storm", "endpoint changes a second"): (Goal("ours", 950, at_least=True),),
    ("storm", "policy edit effective, meanwhile"): (_ours(50),),
    ("storm", "last change effective after"): (_ours(1),),
    ("files", "policy hostname: effective"): (_ours(30), GENTLE),
    ("files", "policy hostname: controller CPU"): (GENTLE,),
    ("files", "failed requests"): (_ours(0),),
    ("folder", "first start: own share"): (_ours(6, MANY),),
    ("folder", "unchanged folder: own share"): (_ours(3, MANY),),
    **{("commands", f"lasthop {name}"): (_ours(0.3),) for name in ("check", "status", "explain", "probe")},
    ("commands", "lasthop --help"): (_ours(0.06),),
    ("commands", "completion"): (_ours(0.06),),
    ("whole", "make test"): (_ours(240),),
    ("whole", "image"): (_ours(130),),
    ("whole", "pip install"): (_ours(250),),
}
