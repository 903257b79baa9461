"""Throw-away certificates for the demo backends, valid for 90 days and made anew when they run out."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 90


def ensure(folder: Path) -> None:
    """Never writes the private keys of the two CAs, so that they cannot sign anything else."""
    names = ("ca", "right", "wrong-name", "unknown-ca")
    if all(lasts(folder / f"{name}.crt") for name in names) and all((folder / f"{n}.key").exists() for n in names[1:]):
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    ca = Issued("Lasthop demo CA")
    stranger = Issued("An unknown CA")
    Issued("right.example", ca).write(folder, "right")
    Issued("old.example", ca).write(folder, "wrong-name")
    Issued("unknown-ca.example", stranger).write(folder, "unknown-ca")
    (folder / "ca.crt").write_bytes(ca.pem)


class Issued:
    """Makes a certificate and its key: a CA, or one that `issuer` has signed, for a server or else a client."""

    def __init__(self, name: str, issuer: Issued | None = None, *, client: bool = False) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = issuer or self
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signer.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False)
        )
        if issuer is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        self.pem = builder.sign(signer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def write(self, folder: Path, name: str) -> None:
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / f"{name}.key").touch(mode=0o600)
        (folder / f"{name}.key").write_bytes(key)
        (folder / f"{name}.crt").write_bytes(self.pem)


def lasts(path: Path) -> bool:
    """Is it there, and for at least a day more?"""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
