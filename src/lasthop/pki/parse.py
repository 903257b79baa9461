"""Parses certificates and private keys of unknown origin. Nothing here raises.

    DER or PEM ──> Certificate, PrivateKey   everything that is ever asked of it, already read
               └─> Unreadable                a sentence fragment about what is wrong

`cryptography` reads lazily: a certificate that loads may raise when its subject, its dates or its extensions are looked at. So
all of them are read here, once, and nobody else calls its loaders with bytes from outside.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

_EDGE: Final = re.compile(rb"-----(BEGIN|END) (?:X509 )?CERTIFICATE-----")
KEY_USAGE: Final = bytes.fromhex("551d0f")
TLS_FEATURE: Final = bytes.fromhex("2b06010505070118")
"""The OIDs of extensions, in DER."""
STATUS_REQUEST: Final = bytes.fromhex("020105")
"""The TLS feature that requires OCSP stapling (RFC 7633): INTEGER 5."""
MAX_RSA_BITS: Final = 8192
"""Envoy accepts twice as many, but a handshake then costs a quarter of a second of a thread that others share."""
MIN_BITS: Final = 2048
MIN_CURVE_BITS: Final = 224
WEAK_HASHES: Final = ("md5", "sha1")
"""These three: today's floor for keys and signatures (NIST SP 800-131A)."""
SHOWN: Final = 200
"""Characters of a name that are kept: a subject may be as long as its Secret, and appears in messages."""

T = TypeVar("T")


class Unreadable(msgspec.Struct, frozen=True):
    """`message` continues a sentence that begins with the place, as in `ca.crt of ConfigMap shop/ca is empty`."""

    message: str


class Certificate(msgspec.Struct, frozen=True):
    subject: str
    """As in RFC 4514, printable and at most `SHOWN` characters long; so are the other names."""
    issuer: str
    common_name: str
    """Of the subject; without one, the whole subject."""
    self_issued: bool
    not_before: float
    not_after: float
    key: str
    """`RSA 2048 bits`, `EC secp256r1`, `Ed25519`."""
    spki: bytes
    """The public key as DER."""
    sha256: bytes
    """Of the whole certificate."""
    der: bytes
    pem: bytes
    signs: bool
    """Whether keyUsage lets the key sign handshakes; it does where nothing is said."""
    must_staple: bool
    """Clients refuse it without an OCSP response (RFC 7633)."""
    extensions: Extensions | Unreadable
    weakness: str = ""
    """What is below today's floor: its key, or the signature on it where somebody else has signed; empty: nothing."""


class Extensions(msgspec.Struct, frozen=True):
    """Those that people are shown, and that Envoy judges itself: none of them may be readable."""

    names: tuple[str, ...] = ()
    """`DNS api.example`, `IP 10.0.0.1`, `URI spiffe://x/y`."""
    dns_names: tuple[str, ...] = ()
    """As they are written, however long, for comparison; so are the `uris`."""
    uris: tuple[str, ...] = ()
    ca: bool = False
    digital_signature: bool = True
    """Whether the key may sign handshakes; it may where nothing is said."""
    key_encipherment: bool = True
    """Whether a secret may be encrypted for it, likewise."""


class PrivateKey(msgspec.Struct, frozen=True):
    """What is known of a private key besides its bytes."""

    key: str
    """As a Certificate's."""
    spki: bytes
    bits: int = 0
    """Of an RSA modulus."""
    exponent: int = 0
    """The same of RSA's public exponent, as a number."""


def certificate(der: bytes) -> Certificate | Unreadable:
    return _guarded(lambda: _certificate(_read("is no certificate", lambda: x509.load_der_x509_certificate(der))))


def certificates(pem: bytes) -> tuple[Certificate, ...] | Unreadable:
    """Returns every certificate between BEGIN and END lines, in order and each once; other text is ignored."""
    if not pem.strip():
        return Unreadable("is empty")
    blocks = list(_blocks(pem))
    if None in blocks:
        return Unreadable("has a truncated certificate")
    if not blocks:
        kind = "a private key" if b"PRIVATE KEY" in pem else "something else"
        return Unreadable(f"holds no PEM certificate but {kind}")
    found: dict[Certificate, None] = {}
    for number, block in enumerate(blocks, 1):
        parsed = _of_block(block or b"")
        if isinstance(parsed, Unreadable):
            return Unreadable(f"{parsed.message} (PEM block {number} of {len(blocks)})")
        found[parsed] = None
    return tuple(found)


def private_key(pem: bytes) -> PrivateKey | Unreadable:
    return _guarded(lambda: _private_key(_loaded_key(pem)))


def normal_key(pem: bytes) -> bytes:
    """Returns the private key as PKCS 8: Envoy finds none after a byte order mark or in indented lines, cryptography does.
    Empty if it cannot be read. The only function here that returns a key."""
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    found = _guarded(lambda: _read("cannot be written", lambda: _loaded_key(pem).private_bytes(*form)))
    return b"" if isinstance(found, Unreadable) else found


def _loaded_key(pem: bytes) -> PrivateKeyTypes:
    # Without cryptography's own check of RSA keys: it looks for primes, which takes 5 s for 8,192 bits. `_check_numbers` is
    # the check that Envoy's library makes.
    return _read(
        "is not an unencrypted PEM private key", lambda: load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    )


class _Wrong(Exception):
    """The message continues a sentence, as `Unreadable`'s does."""


def _guarded(parse: Callable[[], T]) -> T | Unreadable:
    """Returns what `parse` does. Warnings are ignored: Envoy accepts old CAs with a serial number of zero and the like."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse()
    except _Wrong as error:
        return Unreadable(str(error))


def _read(what: str, part: Callable[[], T]) -> T:
    """Reads one part of a certificate or key; `what` is the message if that fails."""
    try:
        return part()
    except Exception as error:
        # Everything: cryptography raises ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion, DuplicateExtension,
        # OverflowError and others for malformed bytes, and they have no other base in common.
        raise _Wrong(what) from error


def _of_block(block: bytes) -> Certificate | Unreadable:
    what = "has something that is not a certificate"
    return _guarded(lambda: _certificate(_read(what, lambda: x509.load_pem_x509_certificate(block))))


def _blocks(pem: bytes) -> Iterator[bytes | None]:
    """Yields the PEM blocks, in linear time; None for an incomplete one."""
    begin: int | None = None
    for edge in _EDGE.finditer(pem):
        if edge[1] == b"BEGIN":
            if begin is not None:
                yield None
            begin = edge.start()
        elif begin is not None:
            yield pem[begin : edge.end()]
            begin = None
    if begin is not None:
        yield None


def _certificate(found: x509.Certificate) -> Certificate:
    subject, issuer, common_name = _read("has a subject or issuer that cannot be read", lambda: _names(found))
    begin, end = _read("has dates that cannot be read", lambda: (found.not_valid_before_utc, found.not_valid_after_utc))
    key, spki = _read("has a public key of an unknown kind", lambda: _public(found.public_key()))
    raw = _read("has extensions that cannot be read", lambda: dict(_raw_extensions(found.tbs_certificate_bytes)))
    return Certificate(
        subject=subject,
        issuer=issuer,
        common_name=common_name,
        self_issued=found.subject == found.issuer,
        not_before=begin.timestamp(),
        not_after=end.timestamp(),
        key=key,
        spki=spki,
        sha256=found.fingerprint(hashes.SHA256()),
        der=found.public_bytes(Encoding.DER),
        pem=found.public_bytes(Encoding.PEM),
        signs=_read("has a keyUsage that cannot be read", lambda: _signs(raw.get(KEY_USAGE))),
        must_staple=STATUS_REQUEST in raw.get(TLS_FEATURE, b""),
        extensions=_guarded(lambda: _read("has extensions that cannot be read", lambda: _extensions(found.extensions))),
        weakness=_weakness(found),
    )


def _weakness(found: x509.Certificate) -> str:
    """Returns what is below today's floor, all of which Envoy accepts. A root's signature on itself proves nothing, so it does
    not matter."""
    key = found.public_key()
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey) and key.key_size < MIN_BITS:
        return f"{key.key_size}-bit {_kind(key).partition(' ')[0]} key"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < MIN_CURVE_BITS:
        return f"key on the curve {key.curve.name}"
    signed = found.signature_algorithm_oid._name.lower()
    weak = next((name for name in WEAK_HASHES if name in signed), "")
    return f"{weak.upper().replace('SHA1', 'SHA-1')} signature" if weak and found.subject != found.issuer else ""


def _names(found: x509.Certificate) -> tuple[str, str, str]:
    named = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    subject, issuer = printable(found.subject.rfc4514_string()), printable(found.issuer.rfc4514_string())
    return subject, issuer, printable(str(named[0].value)) if named else subject


def _public(key: PublicKeyTypes) -> tuple[str, bytes]:
    return _kind(key), key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _extensions(found: x509.Extensions) -> Extensions:
    values: dict[type[x509.ExtensionType], x509.ExtensionType] = {type(each.value): each.value for each in found}
    names, basic = values.get(x509.SubjectAlternativeName), values.get(x509.BasicConstraints)
    usage = values.get(x509.KeyUsage)
    sans = tuple(names) if isinstance(names, x509.SubjectAlternativeName) else ()
    return Extensions(
        names=tuple(map(_name, sans)),
        dns_names=tuple(san.value for san in sans if isinstance(san, x509.DNSName)),
        uris=tuple(san.value for san in sans if isinstance(san, x509.UniformResourceIdentifier)),
        ca=isinstance(basic, x509.BasicConstraints) and basic.ca,
        digital_signature=usage.digital_signature if isinstance(usage, x509.KeyUsage) else True,
        key_encipherment=usage.key_encipherment if isinstance(usage, x509.KeyUsage) else True,
    )


def _raw_extensions(tbs: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields (OID, value) of each extension. cryptography reads all of them or none, and one that it does not support must not
    hide a keyUsage for which Envoy rejects the certificate."""
    ((_, body),) = _elements(tbs)
    explicit = next((content for tag, content in _elements(body) if tag == 0xA3), b"")
    for _, sequence in _elements(explicit):
        for _, extension in _elements(sequence):
            (_, oid), *_, (_, value) = _elements(extension)
            yield oid, value


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (tag, content). Only for DER that has been parsed before: lengths are not checked."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length >= 0x80:
            size = length - 0x80
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        yield tag, der[at : at + length]
        at += length


def _signs(usage: bytes | None) -> bool:
    """Returns whether a key may sign: keyUsage is a BIT STRING of which the first bit is digitalSignature."""
    if usage is None:
        return True
    ((_, bits),) = _elements(usage)
    return bool(bits[1:2] and bits[1] & 0x80)


def _name(name: x509.GeneralName) -> str:
    match name:
        case x509.DNSName():
            return printable(f"DNS {name.value}")
        case x509.IPAddress():
            return f"IP {name.value}"
        case x509.UniformResourceIdentifier():
            return printable(f"URI {name.value}")
        case x509.RFC822Name():
            return printable(f"email {name.value}")
    return type(name).__name__


def bare_names(names: Iterable[str], *types: str) -> tuple[str, ...]:
    """Returns the names as `_name` has written them without their type, all or those of the given types."""
    pairs = (name.partition(" ") for name in names)
    return tuple(value for type, _, value in pairs if value and (not types or type in types))


def _private_key(found: PrivateKeyTypes) -> PrivateKey:
    bits = exponent = 0
    if isinstance(found, rsa.RSAPrivateKey):
        bits, exponent = found.key_size, found.public_key().public_numbers().e
        if bits > MAX_RSA_BITS:
            raise _Wrong(f"is an RSA key of {bits} bits; use one of 2048 to 4096")
        _read("is an RSA key whose parts do not match", lambda: _check_numbers(found.private_numbers()))
    key, spki = _read("is a private key of an unknown kind", lambda: _public(found.public_key()))
    return PrivateKey(key, spki, bits, exponent)


def _check_numbers(numbers: rsa.RSAPrivateNumbers) -> None:
    p, q, d, e = numbers.p, numbers.q, numbers.d, numbers.public_numbers.e
    right = (
        p * q == numbers.public_numbers.n
        and d * e % (p - 1) == 1
        and d * e % (q - 1) == 1
        and numbers.dmp1 == d % (p - 1)
        and numbers.dmq1 == d % (q - 1)
        and numbers.iqmp * q % p == 1
    )
    if not right:
        raise ValueError


def _kind(key: object) -> str:
    match key:
        case rsa.RSAPublicKey():
            return f"RSA {key.key_size} bits"
        case ec.EllipticCurvePublicKey():
            return f"EC {key.curve.name}"
        case ed25519.Ed25519PublicKey():
            return "Ed25519"
        case ed448.Ed448PublicKey():
            return "Ed448"
        case dsa.DSAPublicKey():
            return f"DSA {key.key_size} bits"
    return type(key).__name__.removesuffix("PublicKey")


def printable(text: str) -> str:
    """Makes a name safe and short: it appears in messages, logs and terminals."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)
