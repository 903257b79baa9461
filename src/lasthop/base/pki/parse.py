"""Parses certificates and private keys of unknown origin. Nothing here raises.

    DER or PEM ──> Certificate, PrivateKey   all fields, already read
               ├─> Anchor                    a few fields of a CA: there may be thousands
               └─> Unreadable                the problem, as a clause

`cryptography` parses lazily: a loaded certificate may raise later, on access to its subject, dates or extensions. So this
module reads all of them at once, and is the only one that passes foreign bytes to its loaders."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID, PublicKeyAlgorithmOID

from lasthop.base.pki.raw_extensions import may_sign, must_staple, raw_extensions
from lasthop.base.text.printable import printable

_EDGE: Final = re.compile(rb"-----(BEGIN|END) (?:X509 )?CERTIFICATE-----")
MAX_RSA_BITS: Final = 8192
"""Envoy accepts twice as many, but a handshake then costs a quarter of a second of a thread that others share."""
MIN_BITS: Final = 2048
MIN_CURVE_BITS: Final = 224
RSA_PSS: Final = "RSA-PSS"
"""The kind of an RSA key whose certificate restricts it to PSS (RFC 4055). BoringSSL does not read such a key."""
WEAK_HASHES: Final = ("md5", "sha1")
"""These three constants are the lower limits for keys and signatures in NIST SP 800-131A."""
SHOWN: Final = 200
"""Characters of a name that are kept: a subject may be as long as its Secret, and appears in messages."""

T = TypeVar("T")


class Unreadable(msgspec.Struct, frozen=True):
    """`message` continues a sentence that begins with the place, as in `ca.crt of ConfigMap shop/ca is empty`."""

    message: str


class Anchor(msgspec.Struct, frozen=True, gc=False):
    """A trust anchor: in most cases one CA certificate of a bundle."""

    subject: str
    """A Certificate's `common_name`; the other fields have the same names there."""
    not_before: float
    not_after: float
    sha256: bytes
    weakness: str = ""
    leaf: bool = False
    """Whether it is a server's own certificate: CA is false in basicConstraints, or missing while it has names."""


class Certificate(msgspec.Struct, frozen=True):
    subject: str
    """As in RFC 4514, printable and at most `SHOWN` characters long; so are the other names."""
    issuer: str
    common_name: str
    """The common name of the subject; without one, the whole subject."""
    self_issued: bool
    not_before: float
    not_after: float
    key: str
    """`RSA 2048 bits`, `RSA-PSS 2048 bits`, `EC secp256r1`, `Ed25519`."""
    spki: bytes
    """The public key as DER."""
    sha256: bytes
    """Fingerprint of the whole certificate."""
    der: bytes
    pem: bytes
    signs: bool
    """Whether keyUsage permits signing handshakes; true without keyUsage."""
    must_staple: bool
    """Clients refuse it without an OCSP response (RFC 7633)."""
    extensions: Extensions | Unreadable
    weakness: str = ""
    """The weak key, or the weak signature by another issuer; empty if neither is weak."""


class Extensions(msgspec.Struct, frozen=True):
    """Extensions for display, which Envoy evaluates itself. They may all be unreadable."""

    names: tuple[str, ...] = ()
    """`DNS api.example`, `IP 10.0.0.1`, `URI spiffe://x/y`."""
    dns_names: tuple[str, ...] = ()
    """Unabridged, for comparison, like `uris`."""
    uris: tuple[str, ...] = ()
    ca: bool = False
    digital_signature: bool = True
    """Whether the key may sign handshakes; true without keyUsage."""
    key_encipherment: bool = True
    """Whether the key may encrypt secrets; true without keyUsage."""


class PrivateKey(msgspec.Struct, frozen=True):
    key: str
    """As `Certificate.key`."""
    spki: bytes
    bits: int = 0
    """Length of an RSA modulus."""
    exponent: int = 0
    """RSA's public exponent."""


def certificate(der: bytes) -> Certificate | Unreadable:
    return _guarded(lambda: _certificate(_read("is not a certificate", lambda: x509.load_der_x509_certificate(der))))


def certificates(pem: bytes) -> tuple[Certificate, ...] | Unreadable:
    """Returns every certificate between BEGIN and END lines, in order and each once; other text is ignored."""
    by_pem = _guarded(lambda: _read_each(pem, _certificate))
    return by_pem if isinstance(by_pem, Unreadable) else tuple(by_pem.values())


def anchors(pem: bytes) -> dict[bytes, Anchor] | Unreadable:
    """Returns the certificates as anchors, by their PEM, in half the time of `certificates`. It reports the same errors."""
    return _guarded(lambda: _read_each(pem, _anchor))


def private_key(pem: bytes) -> PrivateKey | Unreadable:
    return _guarded(lambda: _private_key(_loaded_key(pem)))


def normal_key(pem: bytes) -> bytes:
    """Returns the private key as PKCS 8, empty if it cannot be read. Envoy, unlike cryptography, does not find keys after a
    byte order mark or in indented lines. This is the only function here that returns a key."""
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pkcs8 = _guarded(lambda: _read("cannot be written", lambda: _loaded_key(pem).private_bytes(*form)))
    return b"" if isinstance(pkcs8, Unreadable) else pkcs8


def _loaded_key(pem: bytes) -> PrivateKeyTypes:
    # Without cryptography's primality check of RSA keys, which takes 5 s for 8,192 bits. `_check_numbers` repeats the check of
    # Envoy's library.
    return _read(
        "is not an unencrypted PEM private key", lambda: load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
    )


class _ParseError(Exception):
    """The message continues a sentence, as `Unreadable`'s does."""


def _guarded(parse: Callable[[], T]) -> T | Unreadable:
    """Returns the result of `parse`. Warnings are ignored: Envoy accepts old CAs with a serial number of zero and the like."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse()
    except _ParseError as error:
        return Unreadable(str(error))


def _read(message: str, part: Callable[[], T]) -> T:
    """Reads one part of a certificate or key; `what` is the message if that fails."""
    try:
        return part()
    except Exception as error:
        # Everything: cryptography raises ValueError, TypeError, UnsupportedAlgorithm, InvalidVersion, DuplicateExtension,
        # OverflowError and others for malformed bytes, and they have no other base in common.
        raise _ParseError(message) from error


def _read_each(pem: bytes, read: Callable[[x509.Certificate], T]) -> dict[bytes, T]:
    """Reads each certificate once, by its PEM as we write it."""
    if not pem.strip():
        raise _ParseError("is empty")
    blocks = list(_blocks(pem))
    if None in blocks:
        raise _ParseError("has a truncated certificate")
    if not blocks:
        kind = "a private key" if b"PRIVATE KEY" in pem else "something else"
        raise _ParseError(f"holds no PEM certificate but {kind}")
    by_pem: dict[bytes, T] = {}
    for number, block in enumerate(blocks, 1):
        try:
            loaded = _loaded_certificate(block or b"")
            normal = loaded.public_bytes(Encoding.PEM)
            if normal not in by_pem:
                by_pem[normal] = read(loaded)
        except _ParseError as error:
            raise _ParseError(f"{error} (PEM block {number} of {len(blocks)})") from error
    return by_pem


def _loaded_certificate(pem: bytes) -> x509.Certificate:
    return _read("has a certificate that cannot be read", lambda: x509.load_pem_x509_certificate(pem))


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


def _anchor(loaded: x509.Certificate) -> Anchor:
    """Reads the fields of an anchor, and all others that may be unreadable."""
    common_name = _read("has a subject or issuer that cannot be read", lambda: _common_name(loaded))
    begin, end = _read("has dates that cannot be read", lambda: (loaded.not_valid_before_utc, loaded.not_valid_after_utc))
    _read("has a public key of an unknown kind", loaded.public_key)
    if (extensions := _known_extensions(loaded)) is None:
        _raw_use(loaded)
    leaf = extensions is not None and _is_leaf(extensions)
    return Anchor(common_name, begin.timestamp(), end.timestamp(), loaded.fingerprint(SHA256()), _weakness(loaded), leaf)


def _is_leaf(extensions: x509.Extensions) -> bool:
    values = {type(extension.value): extension.value for extension in extensions}
    basic = values.get(x509.BasicConstraints)
    return not basic.ca if isinstance(basic, x509.BasicConstraints) else x509.SubjectAlternativeName in values


def _certificate(loaded: x509.Certificate) -> Certificate:
    anchor = _anchor(loaded)
    key, spki = _read("has a public key of an unknown kind", lambda: _public(loaded.public_key()))
    if loaded.public_key_algorithm_oid == PublicKeyAlgorithmOID.RSASSA_PSS:
        key = key.replace("RSA", RSA_PSS, 1)
    extensions: Extensions | Unreadable
    if (loaded_extensions := _known_extensions(loaded)) is None:
        extensions, (signs, stapled) = Unreadable("has extensions that cannot be read"), _raw_use(loaded)
    else:
        extensions, stapled = _extensions(loaded_extensions), _stapled(loaded_extensions)
        signs = extensions.digital_signature
    der = loaded.public_bytes(Encoding.DER)
    return Certificate(
        subject=short_name(loaded.subject.rfc4514_string()),
        issuer=short_name(loaded.issuer.rfc4514_string()),
        common_name=anchor.subject,
        self_issued=loaded.subject == loaded.issuer,
        not_before=anchor.not_before,
        not_after=anchor.not_after,
        key=key,
        spki=spki,
        sha256=anchor.sha256,
        der=der,
        pem=loaded.public_bytes(Encoding.PEM),
        signs=signs,
        must_staple=stapled,
        extensions=extensions,
        weakness=anchor.weakness,
    )


def _weakness(loaded: x509.Certificate) -> str:
    """Describes a weak key or signature, which Envoy accepts. A root's signature on itself proves nothing, so it does not
    count."""
    key = loaded.public_key()
    if isinstance(key, rsa.RSAPublicKey | dsa.DSAPublicKey) and key.key_size < MIN_BITS:
        return f"{key.key_size}-bit {_kind(key).partition(' ')[0]} key"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.key_size < MIN_CURVE_BITS:
        return f"key on the curve {key.curve.name}"
    signed = loaded.signature_algorithm_oid._name.lower()
    weak = next((name for name in WEAK_HASHES if name in signed), "")
    return f"{weak.upper().replace('SHA1', 'SHA-1')} signature" if weak and loaded.subject != loaded.issuer else ""


def _common_name(loaded: x509.Certificate) -> str:
    """Raises also if only the issuer cannot be read."""
    subject, _ = loaded.subject, loaded.issuer
    common_names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return short_name(str(common_names[0].value) if common_names else subject.rfc4514_string())


def _public(key: PublicKeyTypes) -> tuple[str, bytes]:
    return _kind(key), key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _extensions(extensions: x509.Extensions) -> Extensions:
    values: dict[type[x509.ExtensionType], x509.ExtensionType] = {
        type(extension.value): extension.value for extension in extensions
    }
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


def _stapled(extensions: x509.Extensions) -> bool:
    features = (extension.value for extension in extensions if isinstance(extension.value, x509.TLSFeature))
    return any(x509.TLSFeatureType.status_request in feature for feature in features)


def _known_extensions(loaded: x509.Certificate) -> x509.Extensions | None:
    """Returns the extensions, or None if any of them cannot be read."""
    try:
        return loaded.extensions
    except Exception:
        # Everything, as in `_read`.
        return None


def _raw_use(loaded: x509.Certificate) -> tuple[bool, bool]:
    """Returns `signs` and `must_staple` even if other extensions are unreadable."""
    raw = _read("has extensions that cannot be read", lambda: raw_extensions(loaded.tbs_certificate_bytes))
    return _read("has a keyUsage that cannot be read", lambda: may_sign(raw)), must_staple(raw)


def _name(name: x509.GeneralName) -> str:
    match name:
        case x509.DNSName():
            return short_name(f"DNS {name.value}")
        case x509.IPAddress():
            return f"IP {name.value}"
        case x509.UniformResourceIdentifier():
            return short_name(f"URI {name.value}")
        case x509.RFC822Name():
            return short_name(f"email {name.value}")
    return type(name).__name__


def bare_names(names: Iterable[str], *types: str) -> tuple[str, ...]:
    """Returns names that `_name` has written without their type; with `types`, only names of these types."""
    pairs = (name.partition(" ") for name in names)
    return tuple(value for type, _, value in pairs if value and (not types or type in types))


def _private_key(loaded: PrivateKeyTypes) -> PrivateKey:
    bits = exponent = 0
    if isinstance(loaded, rsa.RSAPrivateKey):
        bits, exponent = loaded.key_size, loaded.public_key().public_numbers().e
        if bits > MAX_RSA_BITS:
            raise _ParseError(f"is an RSA key of {bits} bits; use one of 2048 to 4096")
        _read("is an RSA key whose parts do not match", lambda: _check_numbers(loaded.private_numbers()))
    key, spki = _read("is a private key of an unknown kind", lambda: _public(loaded.public_key()))
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


def short_name(text: str) -> str:
    """Makes a name safe and short: it appears in messages, logs and terminals."""
    return printable(text, SHOWN, "…")
