"""What is wrong with a hostname, in words instead of the CRD's regular expression."""

from __future__ import annotations

import re
from typing import Final

HOSTNAMES: Final = {
    r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": False,
    r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$": True,
}
"""The patterns of the Gateway API's hostnames; whether each permits a wildcard as the first label."""
_PARTS: Final = re.compile(
    r"^(?P<scheme>[a-z][a-z0-9+.-]*://)?(?P<host>[^/:?#]*)(?P<port>:\d+)?(?P<path>[/?#].*)?$", re.IGNORECASE
)


def hostname_problem(written: str, pattern: str) -> tuple[str, str] | None:
    """What is wrong and what to write instead, as the ends of sentences about the value; None if the pattern is another."""
    if pattern not in HOSTNAMES:
        return None
    found = _PARTS.match(written)
    host = found["host"].lower() if found else ""
    instead = f"Write {host}." if re.match(pattern, host) else "Write a name such as api.example."
    if found and found["scheme"]:
        return "is a URL and not a hostname", instead
    if found and found["port"]:
        return "has a port, which is no part of a hostname", instead
    if found and found["path"]:
        return "has a path, which is no part of a hostname", instead
    if written.startswith("*") and not HOSTNAMES[pattern]:
        return "has a wildcard, which is not possible here", instead
    if written != written.lower():
        return "has upper-case letters", instead
    return "is not a DNS name: labels of a-z, 0-9 and -, with dots between", instead
