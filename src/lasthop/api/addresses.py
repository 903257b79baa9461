"""IP addresses, and HOST:PORT, as people write them."""

from __future__ import annotations

import ipaddress


def is_ip(text: str) -> bool:
    if ":" not in text and not text[-1:].isdigit():
        return False  # most names end here; the parser takes much longer to refuse them
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def with_port(host: str, port: int | str) -> str:
    """Returns HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_port(address: str) -> tuple[str, str]:
    """Returns the host without brackets, and the port as it is written; both are empty if there is none."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port
