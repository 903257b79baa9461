"""Issues certificates for the xDS connection. Pure: time comes in as an argument."""

from __future__ import annotations

import datetime
import ipaddress
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lasthop.base.pki import parse
from lasthop.base.pki.parse import Unreadable

BACKDATED: Final = datetime.timedelta(minutes=5)
"""Tolerance for clock differences. It is small, because ages count from the start of validity."""

KIND: Final = "EC secp256r1"
"""The curve of all keys that we issue."""


class PemKeyPair(msgspec.Struct, frozen=True):
    certificate: bytes
    private_key: bytes

    def __repr__(self) -> str:
        return f"<PemKeyPair of {read(self.certificate).subject}>"


def make_ca(name: str, now: float, life: float) -> PemKeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def issue(
    ca: PemKeyPair, name: str, sans: tuple[x509.GeneralName, ...], *, server: bool, now: float, life: float
) -> PemKeyPair:
    """Issues a certificate for one side of the connection: a proxy's cannot be used as the controller's, nor the reverse."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = loaded(ca.certificate), serialization.load_pem_private_key(ca.private_key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the CA's key is not an elliptic curve key")
    usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    # Never longer than its issuer: a chain with an expired CA is rejected.
    life = min(life, issuer.not_valid_after_utc.timestamp() - now)
    builder = (
        _builder(issuer.subject, _name(name), key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _signed(builder, key, issuer_key)


def host_names(names: tuple[str, ...]) -> tuple[x509.GeneralName, ...]:
    return tuple(map(_host_name, names))


def loaded(pem: bytes) -> x509.Certificate:
    """Loads a certificate. Raises ValueError unless all of its fields can be read."""
    return x509.load_der_x509_certificate(read(pem).der)


def read(pem: bytes) -> parse.Certificate:
    """Returns the first certificate. Raises ValueError if any cannot be read."""
    certificates = parse.certificates(pem)
    if isinstance(certificates, Unreadable):
        raise ValueError(f"the certificate {certificates.message}")
    return certificates[0]


def belongs(pair: PemKeyPair) -> bool:
    """Returns whether a certificate and a key of unknown origin are a pair that we issued."""
    certificates, key = parse.certificates(pair.certificate), parse.private_key(pair.private_key)
    return (
        not isinstance(certificates, Unreadable)
        and not isinstance(key, Unreadable)
        and (key.spki, key.key) == (certificates[0].spki, KIND)
    )


def uris(pem: bytes) -> tuple[str, ...]:
    extensions = read(pem).extensions
    return () if isinstance(extensions, Unreadable) else extensions.uris


def issued_by(certificate: x509.Certificate, ca: bytes) -> bool:
    try:
        certificate.verify_directly_issued_by(loaded(ca))
    except Exception:  # cryptography raises one of three exceptions, which have no common base
        return False
    return True


def spent(pem: bytes, now: float) -> float:
    """Returns the elapsed fraction of a certificate's lifetime: 0 at first, 1 when it has expired."""
    certificate = read(pem)
    return (now - certificate.not_before) / max(certificate.not_after - certificate.not_before, 1.0)


def _host_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, now: float, life: float
) -> x509.CertificateBuilder:
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), moment - BACKDATED, moment + datetime.timedelta(seconds=life)
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> PemKeyPair:
    certificate = builder.sign(signer, hashes.SHA256())
    return PemKeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
