"""Tracing of a Gateway: the collector, the sampling rate and the attributes of spans."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from lasthop.engine.plan.upstream import Hop

SAMPLED: Final = 1_000_000
"""The share that samples every request (Envoy's MILLION denominator)."""


class AttributeSource(StrEnum):
    """The source of an attribute's value."""

    HEADER = "Header"
    LITERAL = "Literal"
    REQUEST = "Attribute"


class SpanAttribute(msgspec.Struct, frozen=True):
    name: str
    source: AttributeSource
    value: str
    """The name of a header, the text itself, or a key of OpenTelemetry's semantic conventions."""


class TracingPlan(msgspec.Struct, frozen=True):
    collector: Hop
    """The hop to the collector. Without a cluster for it, nothing is exported."""
    service_name: str
    share: int = SAMPLED
    """Sampled share of requests without a parent trace."""
    parents_share: int | None = SAMPLED
    """Sampled share of requests whose parent is sampled; None ignores the client's decision."""
    span_name: str = ""
    """Empty: the method of the request."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the calls to the collector."""
    attributes: tuple[SpanAttribute, ...] = ()
