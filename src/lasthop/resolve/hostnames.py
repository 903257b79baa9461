"""Hostnames of listeners and routes: matching, intersection, specificity.

A leading `*.` stands for one label or more, here and in Envoy; the empty hostname stands for all. (In certificates it stands
for exactly one: that is in outputs/envoy/tls.py.)
"""

from __future__ import annotations

from collections.abc import Iterator


def covers(pattern: str, hostname: str) -> bool:
    """Whether everything that `hostname` stands for falls under `pattern`."""
    if not pattern or pattern == hostname:
        return True
    if not pattern.startswith("*."):
        return False
    return hostname.removeprefix("*").endswith(pattern[1:]) and hostname != pattern[2:]


def wider(hostname: str) -> Iterator[str]:
    """All other patterns under which a hostname falls, the nearest first."""
    labels = hostname.split(".") if hostname else []
    for number in range(1, len(labels)):
        pattern = f"*.{'.'.join(labels[number:])}"
        if pattern != hostname:
            yield pattern
    if hostname:
        yield ""


def intersection(a: str, b: str) -> str | None:
    """The names that both stand for; None if there are none. Of two patterns one always contains the other, or none."""
    if covers(a, b):
        return b
    return a if covers(b, a) else None


def specificity(hostname: str) -> tuple[int, int]:
    """Sorts the more specific first: exact names, then longer wildcards, then any."""
    if not hostname:
        return (2, 0)
    return (1, -len(hostname)) if hostname.startswith("*.") else (0, -len(hostname))


def most_specific(patterns: tuple[str, ...], hostname: str) -> str | None:
    """Which of the patterns a request for `hostname` belongs to."""
    return min((p for p in patterns if covers(p, hostname)), key=specificity, default=None)
