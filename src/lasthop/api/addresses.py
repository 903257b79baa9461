"""IP addresses, as people write them."""

from __future__ import annotations

import ipaddress


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
