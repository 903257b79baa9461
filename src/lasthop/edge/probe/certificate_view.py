"""Describes a certificate: subject, issuer, names, validity and key."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import datetime

import msgspec

from lasthop.base.api.times import rfc3339
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Unreadable
from lasthop.base.text.printable import printable
from lasthop.edge.probe.result import listed


class CertificateInfo(msgspec.Struct, frozen=True, rename="camel"):
    subject: str
    issuer: str
    names: tuple[str, ...]
    """`DNS api.example`, `IP 10.0.0.1`, `URI spiffe://x/y`."""
    not_before: str
    not_after: str
    key: str
    ca: bool
    sha256: str
    """SHA-256 of the certificate: hex with colons."""
    spki_sha256: str
    """SHA-256 of its public key: base64."""
    pem: str
    self_signed: bool = False


def describe(der: bytes) -> CertificateInfo:
    """Describes a DER certificate. Raises ValueError if it cannot be parsed."""
    certificate = parse.certificate(der)
    if isinstance(certificate, Unreadable):
        raise ValueError(f"it {certificate.message}")
    extensions = parse.Extensions() if isinstance(certificate.extensions, Unreadable) else certificate.extensions
    return CertificateInfo(
        certificate.subject or "(empty)",
        certificate.issuer or "(empty)",
        extensions.names,
        rfc3339(certificate.not_before),
        rfc3339(certificate.not_after),
        certificate.key,
        extensions.ca,
        certificate.sha256.hex(":").upper(),
        base64.b64encode(hashlib.sha256(certificate.spki).digest()).decode(),
        certificate.pem.decode(),
        certificate.self_issued,
    )


def lines(certificate: CertificateInfo, now: float) -> Iterator[str]:
    yield f"subject  {printable(certificate.subject)}"
    yield f"issuer   {'itself (self-signed)' if certificate.self_signed else printable(certificate.issuer)}"
    yield f"names    {printable(listed(certificate.names)) or 'none'}"
    yield f"valid    {certificate.not_before[:10]} to {certificate.not_after[:10]} ({validity(certificate, now)})"
    yield f"key      {certificate.key}{'; a CA' if certificate.ca else ''}"
    yield f"SHA-256  {certificate.sha256}"
    yield f"SPKI     {certificate.spki_sha256}"


def validity(certificate: CertificateInfo, now: float) -> str:
    """Returns `44 days left`, `expired 3 days ago`, `not valid yet`."""
    return "not valid yet" if now < _time(certificate.not_before) else days_left(_time(certificate.not_after), now)


def is_expired(certificate: CertificateInfo, now: float) -> bool:
    return _time(certificate.not_after) <= now


def is_valid(certificate: CertificateInfo, now: float) -> bool:
    return _time(certificate.not_before) <= now and not is_expired(certificate, now)


def _time(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def days_left(end: float, now: float) -> str:
    days = int(abs(end - now) // 86400)
    amount = f"{days} day{'' if days == 1 else 's'}"
    return f"expired {amount} ago" if end <= now else f"{amount} left"
