"""The served route kinds. Only names, so that commands can import it quickly."""

from __future__ import annotations

from typing import Final

REQUEST_KINDS: Final = ("HTTPRoute", "GRPCRoute")
"""Routes of requests."""

STREAM_KINDS: Final = ("TLSRoute", "TCPRoute", "UDPRoute")
"""Routes of whole connections and of datagrams."""

ROUTE_KINDS: Final = (*REQUEST_KINDS, *STREAM_KINDS)
