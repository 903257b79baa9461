"""Selects the statistics that Envoy keeps.

Hops keep only the statistics that `proxy/admin.py` reads. Envoy has some 150 per cluster, a quarter of the memory of a hop
with traffic, and each reading would walk all of them (docs/performance.md#a-request). Other statistics stay."""

from __future__ import annotations

import re
from typing import Final

from lasthop.engine.outputs.envoy.xds_cluster import XDS_CLUSTER

_READ: Final = (
    r"(ssl\.(handshake|connection_error|fail_verify_[a-z_]+)"
    r"|upstream_(cx_(total|connect_fail|connect_timeout|active)|rq_(total|active))"
    r"|outlier_detection\.ejections_active)"
)
_HOP: Final = rf"cluster\..*/.*\.{_READ}"
HOP_STATS: Final = f"^{_HOP}$"
"""The statistics that are read, as an unanchored pattern for the admin API."""


def stats_config() -> dict[str, object]:
    """Returns the bootstrap's `stats_config`. Its patterns match whole names."""
    controller = rf"cluster\.{re.escape(XDS_CLUSTER)}\..*"
    kept = (_HOP, controller, _beginning_otherwise("cluster."))
    patterns = [{"safe_regex": {"regex": pattern}} for pattern in kept]
    return {"stats_matcher": {"inclusion_list": {"patterns": patterns}}}


def _beginning_otherwise(prefix: str) -> str:
    """Matches names without a prefix, in RE2, which has no lookahead. Names shorter than the prefix do not exist."""
    return "|".join(rf"{re.escape(prefix[:place])}[^{re.escape(letter)}].*" for place, letter in enumerate(prefix))
