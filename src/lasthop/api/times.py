"""Times as Kubernetes writes them (RFC 3339, UTC)."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(seconds: float) -> str:
    """Returns a Unix time as a Time: `2026-11-16T20:00:00Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    """Returns the present as a MicroTime: `2026-11-16T20:00:00.000000Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
