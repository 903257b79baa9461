"""Documents: objects as JSON or YAML values, before decoding or after encoding."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def nested(document: Json, *names: str) -> Any:
    """Returns the value at a path of fields; None if a field on the way is missing or null."""
    value: Any = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
