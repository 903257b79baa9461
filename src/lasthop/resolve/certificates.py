"""Certificates as content: PEM in, facts or a sentence about what is wrong out.

Everything that Envoy could refuse is refused here first, because a refused update leaves the old one in force.
"""

from __future__ import annotations

import re
import warnings
from datetime import timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import NameOID

from lasthop.api.core import Secret
from lasthop.api.meta import Key
from lasthop.store.graph import Graph
from lasthop.store.store import read

SOON: Final = timedelta(days=30)
"""How long before it expires a certificate is worth a warning."""

MIN_RSA_BITS: Final = 2048
"""Envoy refuses smaller keys of its own."""

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class BadCertificate(ValueError):
    """The message says what is wrong and, where it can, what to do."""


class Anchor(msgspec.Struct, frozen=True):
    """One CA certificate of a bundle."""

    subject: str
    not_before: float
    not_after: float


class Bundle(msgspec.Struct, frozen=True):
    """CA certificates, and nothing else of what stood around them."""

    pem: bytes
    anchors: tuple[Anchor, ...]


def parse_bundle(pem: bytes) -> Bundle:
    if not pem.strip():
        raise BadCertificate("is empty")
    blocks = list(dict.fromkeys(_BLOCK.findall(pem)))
    if len(_BLOCK.findall(pem)) != pem.count(b"-----BEGIN CERTIFICATE-----"):
        raise BadCertificate("has a certificate that is cut off")
    if not blocks:
        kind = "a private key" if b"PRIVATE KEY" in pem else "something else"
        raise BadCertificate(f"holds no PEM certificate but {kind}")
    anchors, normal = [], []
    for number, block in enumerate(blocks, 1):
        try:
            certificate = _load(block)
            anchors.append(_anchor(certificate))
        except (ValueError, UnsupportedAlgorithm) as error:
            raise BadCertificate(f"has something that is no certificate (PEM block {number} of {len(blocks)})") from error
        normal.append(certificate.public_bytes(Encoding.PEM))
    return Bundle(b"".join(normal), tuple(anchors))


def _load(block: bytes) -> x509.Certificate:
    with warnings.catch_warnings():
        # Old CAs with a serial number of zero: Envoy takes them, and so do we.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificate(block)


def _anchor(certificate: x509.Certificate) -> Anchor:
    certificate.public_key()
    return Anchor(
        common_name(certificate),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string()


class KeyPair(msgspec.Struct, frozen=True):
    """A usable tls.crt and tls.key, without the key itself."""

    subject: str
    not_after: float


def key_pair(g: Graph, secret: Key) -> KeyPair | str:
    """The certificate in a Secret, or what is wrong with it."""
    obj = read(g, secret, Secret)
    if obj is None:
        return f"Secret {secret.path} does not exist"
    chain, key = obj.data.get("tls.crt"), obj.data.get("tls.key")
    if not chain or not key:
        missing = " and ".join(name for name, value in (("tls.crt", chain), ("tls.key", key)) if not value)
        return f"Secret {secret.path} has no {missing}; it needs both, as in type kubernetes.io/tls"
    try:
        return _check_pair(chain, key)
    except BadCertificate as error:
        return f"Secret {secret.path}: {error}"


def _check_pair(chain: bytes, key: bytes) -> KeyPair:
    try:
        certificates = x509.load_pem_x509_certificates(chain)
        public = certificates[0].public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadCertificate("tls.crt is no PEM certificate") from error
    try:
        private = load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadCertificate("tls.key is no unencrypted PEM private key") from error
    if isinstance(private, rsa.RSAPrivateKey) and private.key_size < MIN_RSA_BITS:
        raise BadCertificate(f"tls.key is an RSA key of {private.key_size} bits; at least {MIN_RSA_BITS} are needed")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        raise BadCertificate("tls.key does not belong to the first certificate of tls.crt")
    leaf = certificates[0]
    return KeyPair(common_name(leaf), leaf.not_valid_after_utc.timestamp())


def fingerprint(pem: bytes) -> bytes:
    """SHA-256 of a certificate."""
    return _load(pem).fingerprint(hashes.SHA256())
