"""What one check has found."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Verdict(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Checked(NamedTuple):
    what: str
    """What was looked at: `Envoy`, `port 0.0.0.0:80`."""
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(what: str, found: str) -> Checked:
    return Checked(what, Verdict.OK, found)


def warning(what: str, found: str, remedy: str) -> Checked:
    return Checked(what, Verdict.WARNING, found, remedy)


def broken(what: str, found: str, remedy: str) -> Checked:
    return Checked(what, Verdict.FAILED, found, remedy)
