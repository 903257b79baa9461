"""What is done about endpoints that cannot be connected to: another one is tried, and the bad one is left out for a while.

Only what has not been sent is tried again, so no request is ever processed twice for it.
"""

from __future__ import annotations

from typing import Final

import msgspec

MOST_RETRIES: Final = 10
LONGEST_EJECTION: Final = 3600


class ConnectRules(msgspec.Struct, frozen=True):
    retries: int = 1
    """How often a request whose connection or TLS handshake has failed is tried at another endpoint. Routes with a `retry` of
    their own have their own number. Zero: never. An endpoint that is silent takes as long as a connection may each time."""
    ejection_seconds: int = 30
    """How long an endpoint is left out to which connections keep failing. Zero: none ever is."""


class RetryBudget(msgspec.Struct, frozen=True):
    """How many requests to one backend may be retries at a time, whatever asks for these."""

    percent: float = 100.0
    """Of the requests. LEAST_REQUEST prefers an endpoint that fails at once, so with one of two bad three quarters of the
    requests are tried again until it is ejected."""
    interval: float = 0.0
    """Seconds over which requests are counted. Zero: those that are under way are."""
    minimum: int = 100
    """That many at a time are always allowed: where all fail at once, none are under way."""
