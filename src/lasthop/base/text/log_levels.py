"""The levels of logs, the most verbose first."""

from __future__ import annotations

from typing import Final

LASTHOP: Final = ("debug", "info", "warning", "error")
ENVOY: Final = ("trace", "debug", "info", "warning", "error", "critical", "off")
