"""Rules for endpoints that refuse connections: Envoy retries on another endpoint and ejects the failing one for a while. Only
requests that were not sent yet are retried, so no backend processes a request twice."""

from __future__ import annotations

from typing import Final

import msgspec

MOST_RETRIES: Final = 10
LONGEST_EJECTION: Final = 3600


class ConnectRules(msgspec.Struct, frozen=True):
    retries: int = 1
    """Retries of a request after a failed connection or TLS handshake, each on another endpoint. Routes with their own `retry`
    use their own number. Zero disables retries. An endpoint that does not answer costs one connect timeout per try."""
    ejection_seconds: int = 30
    """Ejection time of an endpoint to which connections keep failing. Zero disables ejection."""


class RetryBudget(msgspec.Struct, frozen=True):
    """Limits how many requests to one backend may be retries at a time, over all rules."""

    percent: float = 100.0
    """Share of the requests. LEAST_REQUEST prefers an endpoint that fails at once, so with one of two endpoints down, three
    quarters of the requests are retried until it is ejected."""
    interval: float = 0.0
    """Seconds over which requests are counted. Zero counts the active requests."""
    minimum: int = 100
    """Retries that are always allowed: if all requests fail at once, none is active."""
