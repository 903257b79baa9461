"""Removes secrets from documents that people share: Envoy's configuration, objects, the contents of ConfigMaps."""

from __future__ import annotations

import re
from typing import Any, Final

from lasthop.base.api.documents import Json

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
"""In both spellings, see `_camel`. Envoy redacts some of them itself."""
SECRET_NAMES: Final = re.compile(
    r"auth(?!ority|or\b)|cookie|token|secret|passw|credential|key|signature|session|jwt", re.IGNORECASE
)
"""Headers and query parameters with secret values."""
VALUE_FIELDS: Final = frozenset({"value", "rawValue", "stringMatch", "exactMatch"})
"""Fields of the value, or of the text to compare it with."""
SENT_FIELDS: Final = frozenset({"initialMetadata", "headersToAdd", "requestHeadersToAdd", "requestHeaderModifier"})
"""Headers that a gateway adds to requests: a collector's or a backend's key, under any name."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object, including a Secret's data."""
PUBLIC: Final = re.compile(r"(\s*-----BEGIN (CERTIFICATE|X509 CRL)-----[A-Za-z0-9+/=\s]*-----END \2-----)*\s*")
"""Certificates only: a ConfigMap may contain anything, even a private key by mistake."""
PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def redacted(value: Any, *, hidden: bool = False) -> Any:
    """Replaces private keys, passwords and secret headers; where `hidden`, all headers."""
    match value:
        case dict():
            name = value.get("name", value.get("key"))
            secret = hidden or (isinstance(name, str) and SECRET_NAMES.search(name) is not None)
            return {field: _field(field, part, secret=secret, hidden=hidden) for field, part in value.items()}
        case list() | tuple():
            return [redacted(item, hidden=hidden) for item in value]
        case str() if PRIVATE_KEY.search(value):
            return REDACTED
    return value


def _field(field: str, value: Any, *, secret: bool, hidden: bool) -> Any:
    name = _camel(field)
    if name in SECRET_FIELDS or field == LAST_APPLIED or (secret and name in VALUE_FIELDS):
        return REDACTED
    if name == "provider" and isinstance(value, dict) and "headers" in value:
        # Headers of an XTelemetryPolicy. Elsewhere `headers` match requests.
        return {**redacted(value, hidden=hidden), "headers": redacted(value["headers"], hidden=True)}
    return redacted(value, hidden=hidden or name in SENT_FIELDS)


def _camel(field: str) -> str:
    head, *words = field.split("_")
    return head + "".join(part.capitalize() for part in words)


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Removes the secrets of an object: a Secret's values, and the private parts of a ConfigMap."""
    if document.get("kind") == "Secret" and isinstance(data := document.get("data"), dict):
        document = {**document, "data": dict.fromkeys(data, REDACTED)}
    public: dict[str, Any] = redacted(without_contents(document))
    return public


def without_contents(document: Json) -> Json:
    """Returns the keys and sizes of a ConfigMap, and its CA certificates. Other kinds are unchanged."""
    if document.get("kind") != "ConfigMap" or not isinstance(data := document.get("data"), dict):
        return document
    return {**document, "data": {key: _shown(key, text) for key, text in data.items()}}


def _shown(key: str, text: str) -> str:
    if key == "ca.crt" and PUBLIC.fullmatch(text):
        return text
    return f"<{len(text.encode())} bytes, not shown>"
