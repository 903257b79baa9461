"""Findings: problems of objects, with remedy and severity. The same finding feeds the log, `lasthop check`, Events and the
audit."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.reasons import Reason, entry_of


def with_remedy(message: str, remedy: str) -> str:
    """Joins a message and its remedy as two sentences."""
    if not remedy:
        return message
    return f"{message} {remedy}" if message.endswith((".", "?", "!")) else f"{message}. {remedy}"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True, order=True):
    object: Key | None
    reason: Reason
    """An entry of engine/plan/reasons.py; the same as the reason of the condition, if there is one."""
    message: str
    """The problem, naming the reference or value at fault."""
    remedy: str = ""
    """An imperative sentence."""
    field: str = ""
    """Path inside the object, e.g. `spec.validation.caCertificateRefs[0]`."""
    severity: Severity = Severity.ERROR
    file: str = ""
    line: int = 0
    about: tuple[Key, ...] = ()
    """The other objects that the message names, in its order."""
    missing: tuple[Key, ...] = ()
    """The objects among `about` that do not exist, cannot be read, or lack the content that is needed."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file else ""
        subject = ", ".join(part for part in (str(self.object) if self.object else "", self.field) if part)
        return f"{place}{subject + ': ' if subject else ''}{with_remedy(self.message, self.remedy)}"


def make_finding(
    object: Key | None,
    reason: Reason,
    message: str,
    remedy: str | None = None,
    field: str = "",
    severity: Severity | None = None,
    *,
    file: str = "",
    line: int = 0,
    about: tuple[Key, ...] = (),
    missing: tuple[Key, ...] = (),
) -> Finding:
    """Returns a finding. Severity and remedy default to those of its reason."""
    entry = entry_of(reason)
    remedy = entry.remedy if remedy is None else remedy
    severity = severity or (Severity.WARNING if entry.warning else Severity.ERROR)
    return Finding(object, reason, message, remedy, field, severity, file, line, about, missing)


class FindingChanges(msgspec.Struct, frozen=True):
    new: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.new or self.gone)
