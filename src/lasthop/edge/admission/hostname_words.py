"""Explains what is wrong with a hostname, instead of quoting the CRD's regular expression."""

from __future__ import annotations

import re
from typing import Final

from lasthop.edge.admission.limits import MAX_MESSAGE

HOSTNAMES: Final = {
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": False,
    r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": True,
}
"""The patterns of the Gateway API's hostnames; whether each permits a wildcard as the first label."""
_PARTS: Final = re.compile(
    r"^(?P<scheme>[a-z][a-z0-9+.-]*://)?(?P<host>[^/:?#]*)(?P<port>:\d+)?(?P<path>[/?#].*)?$", re.IGNORECASE
)


def hostname_problem(written: str, pattern: str) -> tuple[str, str] | None:
    """Returns the problem, to follow the value in a sentence, and the remedy; None if the pattern is another."""
    if pattern not in HOSTNAMES:
        return None
    # Of one that is much too long nothing is guessed: there may be a megabyte of it.
    parts = _PARTS.match(written) if len(written) <= MAX_MESSAGE else None
    host = parts["host"].lower() if parts else ""
    instead = f"Write {host}." if re.match(pattern, host) else "Write a name such as api.example."
    if parts and parts["scheme"]:
        return "is a URL and not a hostname", instead
    if parts and parts["port"]:
        return "has a port, which is not part of a hostname", instead
    if parts and parts["path"]:
        return "has a path, which is not part of a hostname", instead
    if written.startswith("*") and not HOSTNAMES[pattern]:
        return "has a wildcard, which is not allowed here", instead
    if written != written.lower():
        return "has upper-case letters", instead
    return "is not a DNS name: labels of a-z, 0-9 and -, with dots between", instead
