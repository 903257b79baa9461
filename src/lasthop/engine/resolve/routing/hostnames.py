"""Hostnames of listeners and routes: matching, intersection, specificity.

A leading `*.` stands for one label or more, here and in Envoy; the empty hostname stands for all. (In certificates it stands
for exactly one: that is in outputs/envoy/tls.py.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator


def covers(pattern: str, hostname: str) -> bool:
    """Returns whether everything that `hostname` matches falls under `pattern`."""
    if not pattern or pattern == hostname:
        return True
    if not pattern.startswith("*."):
        return False
    return hostname.removeprefix("*").endswith(pattern[1:])


def intersection(a: str, b: str) -> str | None:
    """Returns the names that both stand for; None if there are none. Of two patterns one always contains the other, or
    none."""
    if covers(a, b):
        return b
    return a if covers(b, a) else None


def specificity(hostname: str) -> tuple[int, int]:
    """Sorts the more specific first: exact names, then longer wildcards, then any."""
    if not hostname:
        return (2, 0)
    return (1, -len(hostname)) if hostname.startswith("*.") else (0, -len(hostname))


def most_specific(patterns: Collection[str], hostname: str) -> str | None:
    """Returns which of the patterns a request for `hostname` belongs to. Of a set it asks only for those that can fit: a
    Gateway may have a hostname for each of a thousand teams."""
    return next((pattern for pattern in fitting(hostname) if pattern in patterns), None)


def fitting(hostname: str) -> Iterator[str]:
    """Yields every pattern that covers a hostname, the most specific first."""
    yield hostname
    rest = hostname.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"*.{rest}"
    yield ""
