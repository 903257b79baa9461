"""Certificates of every kind that a backend may wrongly have."""

from __future__ import annotations

import datetime
import ssl
import tempfile
import warnings
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

NOW = datetime.datetime.now(datetime.UTC)
KEY_USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
DAY = datetime.timedelta(days=1)


class Certificate:
    """Issued by `issuer`, or by itself. With a `key_usage`, for that alone."""

    def __init__(
        self,
        name: str,
        issuer: Certificate | None = None,
        *,
        sans: tuple[x509.GeneralName, ...] = (),
        ca: bool = False,
        valid: tuple[datetime.datetime, datetime.datetime] = (NOW - DAY, NOW + DAY),
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
        key: Any = None,
        key_usage: str = "",
        path_length: int | None = None,
        sha1: bool = False,
        pss: bool = False,
        organization: str = "",
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        named = ((NameOID.ORGANIZATION_NAME, organization), (NameOID.COMMON_NAME, name))
        self.subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in named if value])
        signer = issuer or self
        builder = (
            x509.CertificateBuilder(signer.subject, self.subject, self.key.public_key(), x509.random_serial_number(), *valid)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        if not ca:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if key_usage:
            builder = builder.add_extension(x509.KeyUsage(**{name: name == key_usage for name in KEY_USAGES}), critical=True)
        self.certificate = builder.sign(signer.key, hashes.SHA256())
        if sha1:
            # cryptography makes no such signatures any more.
            weak = crypto.X509.from_cryptography(self.certificate)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                weak.sign(crypto.PKey.from_cryptography_key(signer.key), "sha1")
            self.certificate = weak.to_cryptography()
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.key_pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        if pss:
            self._restrict_to_pss(signer)

    def _restrict_to_pss(self, signer: Certificate) -> None:
        """Changes the type of the RSA key to RSASSA-PSS (RFC 4055), which cryptography reads and does not write."""
        traditional = self.key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        version, algorithm = bytes.fromhex("020100"), _der(0x30, bytes.fromhex("06092a864886f70d01010a"))
        private = _der(0x30, version + algorithm + _der(0x04, traditional))
        self.key_pem = ssl.DER_cert_to_PEM_cert(private).replace("CERTIFICATE", "PRIVATE KEY")
        own = crypto.load_privatekey(crypto.FILETYPE_PEM, self.key_pem.encode())
        changed = crypto.X509.from_cryptography(self.certificate)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            changed.set_pubkey(own)
            changed.sign(crypto.PKey.from_cryptography_key(signer.key), "sha256")
        self.certificate = changed.to_cryptography()
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def crl(
        self, *revoked: Certificate, valid: tuple[datetime.datetime, datetime.datetime] = (NOW - DAY, NOW + 9 * DAY)
    ) -> str:
        """A revocation list of this CA as PEM; `valid` until the next one is due."""
        builder = x509.CertificateRevocationListBuilder(self.subject, *valid)
        for certificate in revoked:
            entry = x509.RevokedCertificateBuilder(certificate.certificate.serial_number, valid[0])
            builder = builder.add_revoked_certificate(entry.build())
        key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(key_id, critical=False).add_extension(x509.CRLNumber(1), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def server_context(self, *chain: Certificate) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # weak certificates, too
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "both.pem")
            file.write_text("".join((self.pem, *(above.pem for above in chain), self.key_pem)))
            context.load_cert_chain(file)
        return context


def _der(tag: int, content: bytes) -> bytes:
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    size = length if len(content) < 128 else bytes([0x80 | len(length)]) + length
    return bytes([tag]) + size + content


def dns(*names: str) -> tuple[x509.GeneralName, ...]:
    return tuple(x509.DNSName(name) for name in names)
