"""The path of a gRPC call, `/service/method`, as a pattern."""

from __future__ import annotations

from typing import Final

ANY: Final = "[^/]+"
"""Any service or method of a gRPC path."""


def composed(service: str, method: str) -> str:
    """The pattern of both. A name that is not a pattern has letters, digits and underscores, nothing that means something in
    one."""
    parts = (f"(?:{part})" if part else ANY for part in (service, method))
    return "/".join(("", *parts))
