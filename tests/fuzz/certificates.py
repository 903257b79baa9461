"""Certificates that are the same in every run: fixed keys, serial numbers and dates, and signatures without chance."""

from __future__ import annotations

import base64
import functools
from datetime import UTC, datetime
from random import Random

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_ISSUER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@functools.cache
def pair(name: str = "fuzz.example") -> tuple[bytes, bytes]:
    """(certificate in DER, private key in DER)."""
    key = ec.derive_private_key(sum(name.encode()) + 2, ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name("fuzz CA"))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(_ISSUER, None)
    )
    private = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.DER), private


def pem(der: bytes, label: str = "CERTIFICATE") -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


def odd(r: Random, der: bytes) -> bytes:
    """With some bytes changed, cut or added."""
    for _ in range(r.randint(0, 3)):
        at = r.randrange(len(der) + 1)
        match r.randrange(4):
            case 0:
                der = der[:at]
            case 1:
                der = der[:at] + r.randbytes(r.randint(1, 4)) + der[at:]
            case _:
                der = der[:at] + r.randbytes(1) + der[at + 1 :]
    return der


def certificate(r: Random) -> str:
    return "".join(pem(odd(r, pair()[0])) for _ in range(r.choice((0, 1, 1, 1, 2, 5))))


@functools.cache
def revocation_list() -> bytes:
    """Of the CA that `pair` is issued by, in DER."""
    dates = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC))
    return x509.CertificateRevocationListBuilder(_name("fuzz CA"), *dates).sign(_ISSUER, None).public_bytes(Encoding.DER)


def revocations(r: Random) -> str:
    return "".join(pem(odd(r, revocation_list()), "X509 CRL") for _ in range(r.choice((0, 1, 1, 1, 2))))


def key(r: Random) -> str:
    return pem(odd(r, pair()[1]), r.choice(("PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")))
