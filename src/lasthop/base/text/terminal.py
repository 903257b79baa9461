"""Detects the abilities of standard output and standard error: colours, cursor movement, characters beyond ASCII.

One place for all commands and for the log. `adapt` is called once, before anything is written.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Final, TextIO

_ERRORS: Final = "lasthop-stand-ins"
_ASCII: Final = "lasthop-ascii"
"""ASCII under another name, because click treats the encoding name ASCII as a mistake and writes UTF-8."""
STAND_INS: Final = {
    "✓": "+",
    "✗": "x",
    "│": "|",
    "├": "|",
    "└": "`",
    "─": "-",
    "…": "~",
    "→": ">",
    "·": "-",
    "–": "-",
    "—": "-",
    "×": "x",
}
"""Replacements for our marks in encodings without them, of the same width so that columns stay aligned."""


def coloured(stream: TextIO) -> bool:
    """Returns whether the user permits colours (https://no-color.org) and the terminal shows them."""
    return stream.isatty() and colours_allowed()


def colours_allowed() -> bool:
    return not os.environ.get("NO_COLOR") and not _dumb()


def moves(stream: TextIO) -> bool:
    """Returns whether written lines can be overwritten."""
    return stream.isatty() and not _dumb()


def _dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def adapt() -> None:
    """Makes both outputs write replacements or escapes for characters that their encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (name := codecs.lookup(stream.encoding).name) != "utf-8":
            codecs.register_error(_ERRORS, _stand_ins)
            codecs.register(_ascii)
            stream.reconfigure(encoding=_ASCII if name == "ascii" else None, errors=_ERRORS)


def encoded(text: str, stream: TextIO) -> bytes:
    """Returns the bytes of a text, for callers that bypass the stream's buffer."""
    errors = stream.errors or "replace"
    return text.encode(stream.encoding, "replace" if errors in ("strict", "surrogateescape") else errors)


def _stand_ins(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return "".join(STAND_INS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in characters), error.end


def _ascii(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        codec.encode,
        codec.decode,
        incrementalencoder=codec.incrementalencoder,
        incrementaldecoder=codec.incrementaldecoder,
        name=_ASCII,
    )
