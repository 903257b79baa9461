"""Output on terminals that cannot show every character."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Final

PLAIN: Final = str.maketrans(
    {"✓": "+", "✗": "x", "…": "...", "│": "|", "├": "|", "└": "`", "─": "-", "→": "->", "·": "-", "–": "-", "—": "-", "×": "x"}
)
"""The signs that we print ourselves, in ASCII."""
_HANDLER: Final = "lasthop"


def prepare_streams() -> None:
    """Makes standard output and error replace what their encoding lacks, as with `LANG=de_DE.ISO-8859-1`."""
    codecs.register_error(_HANDLER, replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") not in ("utf8", "utf8sig"):
            stream.reconfigure(errors=_HANDLER)


def replaced(error: UnicodeError) -> tuple[str, int]:
    """Replaces our own signs by similar ones, and everything else by its escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end
