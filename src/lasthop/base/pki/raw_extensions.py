"""Reads single extensions of a certificate from DER that was parsed before.

`cryptography` reads all of them or none, and one that it does not support must not hide a keyUsage for which Envoy rejects the
certificate. Malformed input raises various exceptions here; `parse.py` catches them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

KEY_USAGE: Final = bytes.fromhex("551d0f")
TLS_FEATURE: Final = bytes.fromhex("2b06010505070118")
"""The OIDs of extensions, in DER."""
STATUS_REQUEST: Final = bytes.fromhex("020105")
"""The TLS feature that requires OCSP stapling (RFC 7633): INTEGER 5."""


def raw_extensions(tbs: bytes) -> dict[bytes, bytes]:
    ((_, body),) = _elements(tbs)
    explicit = next((content for tag, content in _elements(body) if tag == 0xA3), b"")
    values: dict[bytes, bytes] = {}
    for _, sequence in _elements(explicit):
        for _, extension in _elements(sequence):
            (_, oid), *_, (_, value) = _elements(extension)
            values[oid] = value
    return values


def may_sign(raw: dict[bytes, bytes]) -> bool:
    """Returns whether a key may sign: the first bit of the BIT STRING keyUsage is digitalSignature."""
    if KEY_USAGE not in raw:
        return True
    ((_, bits),) = _elements(raw[KEY_USAGE])
    return bool(bits[1:2] and bits[1] & 0x80)


def must_staple(raw: dict[bytes, bytes]) -> bool:
    return STATUS_REQUEST in raw.get(TLS_FEATURE, b"")


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (tag, content). Lengths are not checked."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length - 0x80
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length
