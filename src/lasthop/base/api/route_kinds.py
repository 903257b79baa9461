"""The kinds of routes that are served. Names alone: commands that start fast import this."""

from __future__ import annotations

from typing import Final

REQUEST_KINDS: Final = ("HTTPRoute", "GRPCRoute")
"""Routes of single requests."""

STREAM_KINDS: Final = ("TLSRoute", "TCPRoute", "UDPRoute")
"""Routes of whole connections and of datagrams."""

ROUTE_KINDS: Final = (*REQUEST_KINDS, *STREAM_KINDS)
