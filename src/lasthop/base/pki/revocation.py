"""Parses foreign certificate revocation lists. Functions return problems as values and never raise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.dsa import DSAPublicKey
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding

from lasthop.base.pki.parse import Certificate, Unreadable, short_name

_BLOCK: Final = re.compile(rb"-----BEGIN X509 CRL-----[^-]*-----END X509 CRL-----")
_SIGNING: Final = (RSAPublicKey, EllipticCurvePublicKey, Ed25519PublicKey, Ed448PublicKey, DSAPublicKey)
_BEGIN: Final = b"-----BEGIN X509 CRL-----"


class RevocationList(msgspec.Struct, frozen=True):
    issuer: str
    """Printable and short, as the names in `Certificate`."""
    name: bytes
    """The issuer's name as DER, for comparison."""
    this_update: float
    next_update: float | None
    """None without nextUpdate."""
    revoked: int
    pem: bytes


def revocation_lists(pem: bytes) -> tuple[RevocationList, ...] | Unreadable:
    """Returns every list between BEGIN and END lines, in order and each once; other text is ignored."""
    if not pem.strip():
        return Unreadable("is empty")
    blocks = _BLOCK.findall(pem)
    if not blocks or len(blocks) != pem.count(_BEGIN):
        return Unreadable("holds no PEM revocation list" if _BEGIN not in pem else "has a revocation list that is cut off")
    lists: dict[RevocationList, None] = {}
    for number, block in enumerate(blocks, 1):
        try:
            lists[_list(x509.load_pem_x509_crl(block))] = None
        except Exception:
            # Everything, as for certificates: cryptography's errors have no other base in common.
            return Unreadable(f"has a revocation list that cannot be read (PEM block {number} of {len(blocks)})")
    return tuple(lists)


def _list(crl: x509.CertificateRevocationList) -> RevocationList:
    end = crl.next_update_utc
    return RevocationList(
        issuer=short_name(crl.issuer.rfc4514_string()),
        name=crl.issuer.public_bytes(),
        this_update=crl.last_update_utc.timestamp(),
        next_update=end.timestamp() if end else None,
        revoked=len(crl),
        pem=crl.public_bytes(Encoding.PEM),
    )


def issuers(crl: RevocationList, certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """Returns the certificates whose subject is the issuer of the list."""
    return tuple(certificate for certificate in certificates if _subject(certificate) == crl.name)


def signed_by(crl: RevocationList, certificate: Certificate) -> bool:
    try:
        key = x509.load_der_x509_certificate(certificate.der).public_key()
        return isinstance(key, _SIGNING) and x509.load_pem_x509_crl(crl.pem).is_signature_valid(key)
    except Exception:
        return False


def _subject(certificate: Certificate) -> bytes:
    try:
        return x509.load_der_x509_certificate(certificate.der).subject.public_bytes()
    except Exception:
        return b""
