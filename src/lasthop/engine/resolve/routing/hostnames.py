"""Hostnames of listeners and routes: matching, intersection, specificity.

A leading `*.` matches one or more labels, here and in Envoy; the empty hostname matches all. (In certificates it matches
exactly one label; see outputs/envoy/tls.py.)"""

from __future__ import annotations

from collections.abc import Collection, Iterator


def covers(pattern: str, hostname: str) -> bool:
    """Returns whether `pattern` matches everything that `hostname` matches."""
    if not pattern or pattern == hostname:
        return True
    if not pattern.startswith("*."):
        return False
    return hostname.removeprefix("*").endswith(pattern[1:])


def intersection(a: str, b: str) -> str | None:
    """Returns the pattern for the names that both match; None if there are none. Two patterns are either nested or
    disjoint."""
    if covers(a, b):
        return b
    return a if covers(b, a) else None


def specificity(hostname: str) -> tuple[int, int]:
    """Sorts more specific patterns first: exact names, then longer wildcards, then the empty hostname."""
    if not hostname:
        return (2, 0)
    return (1, -len(hostname)) if hostname.startswith("*.") else (0, -len(hostname))


def most_specific(patterns: Collection[str], hostname: str) -> str | None:
    """Returns the most specific pattern that covers `hostname`. It looks up only patterns that can match, because a Gateway
    may have thousands of hostnames."""
    return next((pattern for pattern in fitting(hostname) if pattern in patterns), None)


def fitting(hostname: str) -> Iterator[str]:
    """Yields every pattern that covers a hostname, the most specific first."""
    yield hostname
    domain = hostname.removeprefix("*.")
    while "." in domain:
        domain = domain.partition(".")[2]
        yield f"*.{domain}"
    yield ""
