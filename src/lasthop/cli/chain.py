"""A certificate as people read it: whose, by whom, for which names, until when, with which key."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from lasthop.cli.terminal import printable


class Shown(msgspec.Struct, frozen=True, rename="camel"):
    subject: str
    issuer: str
    names: tuple[str, ...]
    """`DNS api.example`, `IP 10.0.0.1`, `URI spiffe://x/y`."""
    not_before: str
    not_after: str
    key: str
    ca: bool
    sha256: str
    """Of the certificate: hex with colons."""
    spki_sha256: str
    """Of its public key: base64."""
    pem: str

    @property
    def self_signed(self) -> bool:
        return self.subject == self.issuer


def shown(der: bytes) -> Shown:
    """Raises ValueError for what is no certificate."""
    certificate = x509.load_der_x509_certificate(der)
    spki = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Shown(
        certificate.subject.rfc4514_string() or "(empty)",
        certificate.issuer.rfc4514_string() or "(empty)",
        tuple(_names(certificate)),
        _stamp(certificate.not_valid_before_utc),
        _stamp(certificate.not_valid_after_utc),
        _key(certificate),
        _is_ca(certificate),
        hashlib.sha256(der).digest().hex(":").upper(),
        base64.b64encode(hashlib.sha256(spki).digest()).decode(),
        certificate.public_bytes(Encoding.PEM).decode(),
    )


def lines(certificate: Shown, now: float) -> Iterator[str]:
    yield f"subject  {printable(certificate.subject)}"
    yield f"issuer   {'itself (self-signed)' if certificate.self_signed else printable(certificate.issuer)}"
    yield f"names    {printable(', '.join(certificate.names)) or 'none'}"
    yield f"valid    {certificate.not_before[:10]} to {certificate.not_after[:10]} ({validity(certificate, now)})"
    yield f"key      {certificate.key}{'; a CA' if certificate.ca else ''}"
    yield f"SHA-256  {certificate.sha256}"
    yield f"SPKI     {certificate.spki_sha256}"


def validity(certificate: Shown, now: float) -> str:
    """`44 days left`, `expired 3 days ago`, `not valid yet`."""
    begin, end = (datetime.fromisoformat(stamp).timestamp() for stamp in (certificate.not_before, certificate.not_after))
    if now < begin:
        return "not valid yet"
    days = int(abs(end - now) // 86400)
    amount = f"{days} day{'' if days == 1 else 's'}"
    return f"expired {amount} ago" if now > end else f"{amount} left"


def _stamp(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names:
        match name:
            case x509.DNSName():
                yield f"DNS {name.value}"
            case x509.IPAddress():
                yield f"IP {name.value}"
            case x509.UniformResourceIdentifier():
                yield f"URI {name.value}"
            case x509.RFC822Name():
                yield f"email {name.value}"
            case _:
                yield type(name).__name__


def _key(certificate: x509.Certificate) -> str:
    match certificate.public_key():
        case rsa.RSAPublicKey() as key:
            return f"RSA {key.key_size} bits"
        case ec.EllipticCurvePublicKey() as key:
            return f"EC {key.curve.name}"
        case ed25519.Ed25519PublicKey() | ed448.Ed448PublicKey() as key:
            return type(key).__name__.removesuffix("PublicKey")
        case key:
            return type(key).__name__


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False
