"""The result of one check of `lasthop doctor`."""

from __future__ import annotations

import enum
from typing import NamedTuple


class CheckState(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class CheckResult(NamedTuple):
    what: str
    """The thing that was checked: `Envoy`, `port 0.0.0.0:80`."""
    verdict: CheckState
    found: str
    remedy: str = ""


def ok(subject: str, message: str) -> CheckResult:
    return CheckResult(subject, CheckState.OK, message)


def warning(subject: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(subject, CheckState.WARNING, message, remedy)


def broken(subject: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(subject, CheckState.FAILED, message, remedy)
