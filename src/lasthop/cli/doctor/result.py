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


def ok(what: str, message: str) -> CheckResult:
    return CheckResult(what, CheckState.OK, message)


def warning(what: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(what, CheckState.WARNING, message, remedy)


def broken(what: str, message: str, remedy: str) -> CheckResult:
    return CheckResult(what, CheckState.FAILED, message, remedy)
