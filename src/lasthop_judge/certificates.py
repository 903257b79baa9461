"""Issues certificates from recipes, each once per run."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import functools
import hashlib
import ipaddress
import warnings
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = datetime.timedelta(days=1)
KEY_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
PURPOSES: Final = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code": ExtendedKeyUsageOID.CODE_SIGNING,
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
}
SAN: Final = x509.ObjectIdentifier("2.5.29.17")
PRIVATE: Final = x509.ObjectIdentifier("1.3.6.1.4.1.55555.1")
"""An extension that no verifier knows."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """`sans` are `dns:`, `uri:`, `ip:`, `mail:`, or `raw:` for a DNS name of any bytes."""

    cn: str
    sans: tuple[str, ...] = ()
    issuer: Recipe | None = None
    """None: self-signed."""
    ca: bool = False
    days: tuple[float, float] = (-1, 365)
    purposes: tuple[str, ...] = ("server",)
    usages: tuple[str, ...] = ()
    path_length: int | None = None
    permitted: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    """Name constraints: DNS names."""
    key: str = "p256"
    digest: str = "sha256"
    critical: bool = False
    """Has a critical extension that no verifier knows."""
    damaged: bool = False
    """The signature has a flipped bit."""
    basic: bool = True
    """Has basic constraints."""
    twin: int = 0
    """Distinguishes otherwise equal certificates: each has a key of its own."""


CA: Final = Recipe("judge CA", ca=True)
OTHER_CA: Final = Recipe("judge other CA", ca=True)


def leaf(*names: str, **settings: Any) -> Recipe:
    """Returns a server certificate for DNS names, or for SANs with a prefix, by default issued by the case's CA."""
    sans = tuple(name if name.partition(":")[0] in ("dns", "uri", "ip", "mail", "raw") else f"dns:{name}" for name in names)
    return Recipe(**{"cn": "backend", "issuer": CA, **settings, "sans": sans})


@dataclasses.dataclass(frozen=True)
class Issued:
    pem: str
    key_pem: str
    certificate: x509.Certificate
    key: Any

    @property
    def key_hash(self) -> str:
        """Returns base64 of the SHA-256 of the SubjectPublicKeyInfo, as in pins."""
        spki = self.key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(hashlib.sha256(spki).digest()).decode()

    @property
    def certificate_hash(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()


class Issuer:
    """Issues certificates; the same recipe gives the same certificate."""

    def __init__(self) -> None:
        self._now = datetime.datetime.now(datetime.UTC)
        self.issue = functools.cache(self._issue)

    def chain(self, recipe: Recipe, above: tuple[Recipe, ...]) -> str:
        return "".join(self.issue(link).pem for link in (recipe, *above))

    def _issue(self, recipe: Recipe) -> Issued:
        key = _key(recipe.key)
        above = self.issue(recipe.issuer) if recipe.issuer else None
        signer = above.key if above else key
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, recipe.cn)])
        dates = (self._now + recipe.days[0] * DAY, self._now + recipe.days[1] * DAY)
        builder = x509.CertificateBuilder(
            above.certificate.subject if above else subject, subject, key.public_key(), x509.random_serial_number(), *dates
        )
        for extension, critical in _extensions(recipe, key, signer):
            builder = builder.add_extension(extension, critical)
        digest = None if isinstance(signer, ed25519.Ed25519PrivateKey) else getattr(hashes, _DIGESTS[recipe.digest])()
        certificate = builder.sign(signer, digest)
        if recipe.digest == "md5":
            certificate = _weakly_signed(certificate, signer, recipe.digest)
        if recipe.damaged:
            der = bytearray(certificate.public_bytes(serialization.Encoding.DER))
            der[-1] ^= 1
            certificate = x509.load_der_x509_certificate(bytes(der))
        return Issued(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ).decode(),
            certificate,
            key,
        )


_DIGESTS: Final = {"sha256": "SHA256", "sha384": "SHA384", "sha512": "SHA512", "md5": "SHA256"}


def _key(kind: str) -> Any:
    match kind:
        case "p256":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ed25519":
            return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, int(kind.removeprefix("rsa")))


def _extensions(recipe: Recipe, key: Any, signer: Any) -> list[tuple[x509.ExtensionType, bool]]:
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
    ]
    if recipe.basic:
        extensions.append((x509.BasicConstraints(ca=recipe.ca, path_length=recipe.path_length), True))
    if any(name.startswith("raw:") for name in recipe.sans):
        extensions.append((x509.UnrecognizedExtension(SAN, _raw_sans(recipe.sans)), False))
    elif recipe.sans:
        extensions.append((x509.SubjectAlternativeName([_general_name(name) for name in recipe.sans]), False))
    if not recipe.ca and recipe.purposes:
        extensions.append((x509.ExtendedKeyUsage([PURPOSES[purpose] for purpose in recipe.purposes]), False))
    if recipe.usages:
        extensions.append((x509.KeyUsage(**{name: name in recipe.usages for name in KEY_USAGES}), True))
    if recipe.permitted or recipe.excluded:
        permitted, excluded = ([x509.DNSName(name) for name in names] for names in (recipe.permitted, recipe.excluded))
        extensions.append((x509.NameConstraints(permitted or None, excluded or None), True))
    if recipe.critical:
        extensions.append((x509.UnrecognizedExtension(PRIVATE, b"\x05\x00"), True))
    return extensions


def _general_name(name: str) -> x509.GeneralName:
    kind, _, value = name.partition(":")
    match kind:
        case "uri":
            return x509.UniformResourceIdentifier(value)
        case "ip":
            return x509.IPAddress(ipaddress.ip_address(value))
        case "mail":
            return x509.RFC822Name(value)
    return x509.DNSName(value)


def _raw_sans(names: tuple[str, ...]) -> bytes:
    """Returns the DER of GeneralNames with dNSNames that the builder of cryptography rejects."""
    values = b"".join(_der(0x82, name.partition(":")[2].encode("latin-1")) for name in names)
    return _der(0x30, values)


def _der(tag: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes((tag, len(content))) + content


def _weakly_signed(certificate: x509.Certificate, signer: Any, digest: str) -> x509.Certificate:
    """Signs with pyOpenSSL, because cryptography does not create such signatures."""
    from OpenSSL import crypto

    weak = crypto.X509.from_cryptography(certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        weak.sign(crypto.PKey.from_cryptography_key(signer), digest)
    return weak.to_cryptography()
