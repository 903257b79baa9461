"""Removes secrets from documents that people pass on: Envoy's configuration, objects, the contents of ConfigMaps."""

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
"""In both spellings, see `_camel`. Envoy redacts some of them by itself."""
SECRET_NAMES: Final = re.compile(
    r"auth(?!ority|or\b)|cookie|token|secret|passw|credential|key|signature|session|jwt", re.IGNORECASE
)
"""Headers and query parameters whose values are secrets."""
VALUE_FIELDS: Final = frozenset({"value", "rawValue", "stringMatch", "exactMatch"})
"""Where the value is, or what is compared with it."""
SENT_FIELDS: Final = frozenset({"initialMetadata", "headersToAdd", "requestHeadersToAdd", "requestHeaderModifier"})
"""Headers that a gateway adds to what it sends: a collector's or a backend's key, whatever name that vendor has given it."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object, a Secret's data too."""
PUBLIC: Final = re.compile(r"(\s*-----BEGIN (CERTIFICATE|X509 CRL)-----[A-Za-z0-9+/=\s]*-----END \2-----)*\s*")
"""Certificates, and nothing beside them: a ConfigMap may hold anything, a private key too if someone errs."""
PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def redacted(value: Any, *, hidden: bool = False) -> Any:
    """Returns the value with private keys, passwords and secret headers replaced; where `hidden`, all headers."""
    match value:
        case dict():
            name = value.get("name", value.get("key"))
            secret = hidden or (isinstance(name, str) and SECRET_NAMES.search(name) is not None)
            return {field: _field(field, each, secret=secret, hidden=hidden) for field, each in value.items()}
        case list() | tuple():
            return [redacted(each, hidden=hidden) for each in value]
        case str() if PRIVATE_KEY.search(value):
            return REDACTED
    return value


def _field(field: str, value: Any, *, secret: bool, hidden: bool) -> Any:
    name = _camel(field)
    if name in SECRET_FIELDS or field == LAST_APPLIED or (secret and name in VALUE_FIELDS):
        return REDACTED
    if name == "provider" and isinstance(value, dict) and "headers" in value:
        # Of an XTelemetryPolicy. Elsewhere `headers` are what requests are matched by.
        return {**redacted(value, hidden=hidden), "headers": redacted(value["headers"], hidden=True)}
    return redacted(value, hidden=hidden or name in SENT_FIELDS)


def _camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


def without_secrets(document: dict[str, Any]) -> dict[str, Any]:
    """Returns an object without what is secret in it: the keys of a Secret, of a ConfigMap what is public by nature."""
    if document.get("kind") == "Secret" and isinstance(data := document.get("data"), dict):
        document = {**document, "data": dict.fromkeys(data, REDACTED)}
    found: dict[str, Any] = redacted(without_contents(document))
    return found


def without_contents(document: Json) -> Json:
    """Returns the keys and sizes of a ConfigMap, and its CA certificates. Other kinds come back as they are."""
    if document.get("kind") != "ConfigMap" or not isinstance(data := document.get("data"), dict):
        return document
    return {**document, "data": {key: _shown(key, text) for key, text in data.items()}}


def _shown(key: str, text: str) -> str:
    if key == "ca.crt" and PUBLIC.fullmatch(text):
        return text
    return f"<{len(text.encode())} bytes, not shown>"
