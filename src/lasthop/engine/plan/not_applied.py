"""A file whose present text is refused: where, why, and what is in force in its place."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.times import rfc3339

FILE_NOT_APPLIED: Final = "FileNotApplied"
"""Reason of the finding for a file of which nothing is in force."""
OLDER_TEXT_IN_FORCE: Final = "OlderTextInForce"
"""Reason of the finding for a file whose last good text is in force instead of its present one."""
NOT_APPLIED: Final = (FILE_NOT_APPLIED, OLDER_TEXT_IN_FORCE)


def moment(nanoseconds: int) -> str:
    """Returns a file's time of modification as RFC 3339."""
    return rfc3339(nanoseconds // 10**9)


class NotApplied(msgspec.Struct, frozen=True, order=True):
    file: str
    line: int
    """Of the first mistake."""
    why: str
    since: str = ""
    """When the text in force was written, as RFC 3339; empty if nothing of the file is in force."""
    objects: tuple[Key, ...] = ()
    """The objects that are in force as the older text has them."""

    @property
    def reason(self) -> str:
        return OLDER_TEXT_IN_FORCE if self.since else FILE_NOT_APPLIED

    def __str__(self) -> str:
        instead = f"the text of {self.since} is in force" if self.since else "nothing of it is in force"
        return f"{self.file}:{self.line}: not applied, {instead}: {self.why}"
