"""What a Gateway tells of its requests: spans, where they go, how many of them, and what they carry."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from lasthop.engine.plan.upstream import Hop

SAMPLED: Final = 1_000_000
"""A share of this many is all."""


class AttributeSource(StrEnum):
    """Where the value of an attribute comes from."""

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
    """Which may have no cluster: then nothing is exported."""
    service_name: str
    share: int = SAMPLED
    """Of the requests that no trace has been begun for."""
    parents_share: int | None = SAMPLED
    """Of those whose trace is sampled already; None: what the client says of that is not looked at."""
    span_name: str = ""
    """Empty: the method of the request."""
    headers: tuple[tuple[str, str], ...] = ()
    """Of the calls to the collector."""
    attributes: tuple[SpanAttribute, ...] = ()
