"""Message texts that several modules share, and truncation of long messages."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.meta import Key
from lasthop.engine.plan.limits import MESSAGE_LENGTH

NOTE: Final = 1000
"""Characters of an Event's note. The truncation mark has more bytes than characters, and must fit into `NOTE_BYTES`."""
NOTE_BYTES: Final = 1024
CRASHED: Final = "Lasthop failed to process this, so it is closed; the log says why. Please report it"
"""The message for an object whose query raised an exception."""
SEPARATOR: Final = "; "
"""Separates the parts of a message."""


def probe_command(key: Key) -> str:
    """Returns the command that probes the backends of an object. A policy is named without its kind."""
    return f"lasthop probe {key.path if key.kind == 'BackendTLSPolicy' else key.argument}"


def limited(message: str, limit: int = MESSAGE_LENGTH) -> str:
    """Truncates a message after the last part that fits, and appends the number of omitted parts. A single long part is cut at
    the limit."""
    if len(message) <= limit:
        return message
    room = limit - len(_more(message.count(SEPARATOR)))
    end = message.rfind(SEPARATOR, 0, room)
    if end < 0:
        return f"{message[: limit - 2]} …"
    return f"{message[:end]}{_more(message.count(SEPARATOR, end))}"


def _more(count: int) -> str:
    return f"{SEPARATOR}… and {count} more"
