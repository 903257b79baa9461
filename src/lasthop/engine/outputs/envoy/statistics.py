"""Envoy's statistics: which it keeps.

Of a hop only what `proxy/admin.py` reads: Envoy has some 150 for a cluster, to which a quarter of its memory for a hop with
traffic went, and all of which were walked for each reading (docs/performance.md#a-request). Everything else stays.
"""

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
"""What is read, as a pattern for the admin API, which searches."""


def stats_config() -> dict[str, object]:
    """Returns the bootstrap's `stats_config`. Its patterns match whole names."""
    controller = rf"cluster\.{re.escape(XDS_CLUSTER)}\..*"
    kept = (_HOP, controller, _beginning_otherwise("cluster."))
    patterns = [{"safe_regex": {"regex": pattern}} for pattern in kept]
    return {"stats_matcher": {"inclusion_list": {"patterns": patterns}}}


def _beginning_otherwise(prefix: str) -> str:
    """Matches what does not begin so, in RE2, which cannot look ahead. Shorter names are left out: there are none."""
    return "|".join(rf"{re.escape(prefix[:place])}[^{re.escape(letter)}].*" for place, letter in enumerate(prefix))
