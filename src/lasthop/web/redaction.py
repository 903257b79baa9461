"""Removes what is secret from documents that people pass on: Envoy's configuration, objects."""

from __future__ import annotations

import re
from typing import Any, Final

REDACTED: Final = "[redacted]"
SECRET_FIELDS: Final = frozenset(
    {
        "privateKey",
        "privateKeyProvider",
        "password",
        "sessionTicketKeys",
        "genericSecret",
        "hmacSecret",
        "clientSecret",
        "token",
        "stringData",
    }
)
"""In both spellings, see `_camel`. Envoy redacts some of them by itself."""
SECRET_NAMES: Final = re.compile(r"authorization|cookie|token|secret|passw|credential|api-?key", re.IGNORECASE)
"""Headers whose values are secrets."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object, a Secret's data too."""
PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def redacted(value: Any) -> Any:
    """Returns the value with private keys, passwords and secret headers replaced."""
    match value:
        case dict():
            name = value.get("name", value.get("key"))
            hidden = isinstance(name, str) and "value" in value and SECRET_NAMES.search(name)
            return {field: _field(field, each, hidden=bool(hidden)) for field, each in value.items()}
        case list():
            return [redacted(each) for each in value]
        case str() if PRIVATE_KEY.search(value):
            return REDACTED
    return value


def _field(field: str, value: Any, *, hidden: bool) -> Any:
    if _camel(field) in SECRET_FIELDS or field == LAST_APPLIED or (hidden and field in ("value", "rawValue", "raw_value")):
        return REDACTED
    return redacted(value)


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Returns an object without what is secret in it; of a Secret only the keys are left."""
    if document.get("kind") == "Secret" and isinstance(data := document.get("data"), dict):
        document = {**document, "data": dict.fromkeys(data, REDACTED)}
    found: dict[str, Any] = redacted(document)
    return found
