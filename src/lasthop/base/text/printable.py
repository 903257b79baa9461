"""Makes untrusted text safe for a terminal: nothing in it moves the cursor, hides, reorders or forges a line.

One place for all commands and for the log: `clean` is applied to all output before layout and colours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")
LIMIT: Final = 4000
"""Characters of one text that are shown."""


def printable(text: str, limit: int = LIMIT, cut: str = "") -> str:
    """Escapes control characters, newlines, bidirectional overrides and all other characters without a glyph. Texts over the
    limit are truncated first, which bounds the work. They end in `cut`, or in the number of omitted characters."""
    if len(text) > limit:
        text = f"{text[:limit]}{cut or f'... ({len(text) - limit} more characters)'}"
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def some(texts: Sequence[str], most: int) -> str:
    """Returns `a, b and 3 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def clean(value: T) -> T:
    """Returns the value with every text in it made printable, also inside mappings, sequences and structs."""
    cleaned: T = _clean(value)
    return cleaned


def _clean(value: Any) -> Any:
    match value:
        case str():
            shown = printable(value)
            return value if shown == value else shown  # the member of an enum keeps its type
        case dict():
            return {_clean(name): _clean(item) for name, item in value.items()}
        case list():
            return [_clean(item) for item in value]
        case tuple():
            parts = [_clean(item) for item in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    # A struct exists only if msgspec is loaded. The quick commands do not load it.
    msgspec = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _clean(getattr(value, name)) for name in value.__struct_fields__})
    return value
