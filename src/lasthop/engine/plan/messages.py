"""Messages that many places share, and the cutting of those that are too long."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.meta import Key
from lasthop.engine.plan.limits import MESSAGE_LENGTH

NOTE: Final = 1000
"""Characters of an Event's note, so that the mark of a cut fits into its bytes."""
NOTE_BYTES: Final = 1024
CRASHED: Final = "Lasthop failed to process this, so it is closed; the log says why. Please report it"
"""Of whatever a query that raised should have made."""
SEPARATOR: Final = "; "
"""Between the parts of a message that says several things."""


def probe_command(key: Key) -> str:
    """Returns the command that tries the backends of an object; of a policy it takes the name alone."""
    return f"lasthop probe {key.path if key.kind == 'BackendTLSPolicy' else key.argument}"


def limited(message: str, limit: int = MESSAGE_LENGTH) -> str:
    """Returns the message, cut after its last whole part that fits and with the number of those left out. One that is too
    long in itself is cut where it is."""
    if len(message) <= limit:
        return message
    room = limit - len(_more(message.count(SEPARATOR)))
    end = message.rfind(SEPARATOR, 0, room)
    if end < 0:
        return f"{message[: limit - 2]} …"
    return f"{message[:end]}{_more(message.count(SEPARATOR, end))}"


def _more(count: int) -> str:
    return f"{SEPARATOR}… and {count} more"
