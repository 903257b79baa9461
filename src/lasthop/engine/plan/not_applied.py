"""Describes a file that cannot be parsed: where, why, and which older content is in force instead."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.times import rfc3339
from lasthop.engine.plan.reasons import FILE_NOT_APPLIED, OLDER_TEXT_IN_FORCE, Reason


def moment(nanoseconds: int) -> str:
    """Returns a file's time of modification as RFC 3339."""
    return rfc3339(nanoseconds // 10**9)


class NotApplied(msgspec.Struct, frozen=True, order=True):
    file: str
    line: int
    """Of the first mistake."""
    why: str
    since: str = ""
    """When the text in force was written, as RFC 3339; empty if none of the file is in force."""
    objects: tuple[Key, ...] = ()
    """The objects that stay in force with their older content."""

    @property
    def reason(self) -> Reason:
        return OLDER_TEXT_IN_FORCE if self.since else FILE_NOT_APPLIED

    def __str__(self) -> str:
        instead = f"the text of {self.since} is in force" if self.since else "none of it is in force"
        return f"{self.file}:{self.line}: not applied, {instead}: {self.why}"
