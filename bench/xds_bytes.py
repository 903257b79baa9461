"""Reads the number of configuration bytes sent from Lasthop's metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable


def sent(get: Callable[[str], tuple[int, bytes]], size: int) -> dict[str, int]:
    """Returns the xDS bytes since the start, by type. `get` requests a path of the admin API. Waits first: metrics may be old,
    with more hops older."""
    time.sleep(1 + size / 1000)
    text = get("/metrics")[1].decode()
    counts = re.findall(r'^lasthop_xds_bytes_total\{type="(\w+)"\} (\S+)', text, re.MULTILINE)
    return {type_: int(float(count)) for type_, count in counts}
