"""Certificates with their keys, of every kind that a Secret may hold."""

from __future__ import annotations

import base64
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.certificates import DAY, NOW, Certificate, dns
from tests.odd_certificates import odd_ders, pem, valid

Pair = tuple[str, str]
USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@functools.cache
def rsa_key(bits: int = 2048, e: int = 65537) -> rsa.RSAPrivateKey:
    """Makes a key of numbers that fit together, without searching for primes: those of a large key take minutes to find."""
    p, q = (2 ** (bits // 2) - odd for odd in _co_prime(bits // 2, e))
    phi = (p - 1) * (q - 1) // math.gcd(p - 1, q - 1)
    d = pow(e, -1, phi)
    public = rsa.RSAPublicNumbers(e, p * q)
    numbers = rsa.RSAPrivateNumbers(
        max(p, q), min(p, q), d, d % (max(p, q) - 1), d % (min(p, q) - 1), pow(min(p, q), -1, max(p, q)), public
    )
    return numbers.private_key(unsafe_skip_rsa_key_validation=True)


def _co_prime(bits: int, e: int) -> list[int]:
    fit = (odd for odd in itertools.count(1, 2) if math.gcd(2**bits - odd - 1, e) == 1)
    return list(itertools.islice(fit, 2))


P256 = ec.generate_private_key(ec.SECP256R1())
CA_KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(
    key: Any,
    *extensions: x509.ExtensionType,
    hash: Any = hashes.SHA256,
    signer: Any = None,
    valid: Any = (NOW - DAY, NOW + DAY),
) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web.example")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), *valid)
    for extension in (x509.SubjectAlternativeName(dns("web.example")), *extensions):
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signer or CA_KEY, hash()).public_bytes(Encoding.PEM).decode()


def key_pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, encryption: Any = None) -> str:
    written: bytes = key.private_bytes(Encoding.PEM, form, encryption or NoEncryption())
    return written.decode()


def pair(key: Any, *extensions: x509.ExtensionType, **more: Any) -> Pair:
    return certificate(key, *extensions, **more), key_pem(key)


def usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in names for name in USAGES})


def _cases() -> Iterator[tuple[str, Pair]]:
    yield "P-256", pair(P256)
    yield "P-384", pair(ec.generate_private_key(ec.SECP384R1()))
    yield "P-521", pair(ec.generate_private_key(ec.SECP521R1()))
    yield "P-224", pair(ec.generate_private_key(ec.SECP224R1()))
    yield "secp256k1", pair(ec.generate_private_key(ec.SECP256K1()))
    yield "brainpool", pair(ec.generate_private_key(ec.BrainpoolP256R1()))
    yield "Ed25519", pair(ed25519.Ed25519PrivateKey.generate())
    yield "Ed448", pair(ed448.Ed448PrivateKey.generate())
    yield "X25519", pair(x25519.X25519PrivateKey.generate())
    yield "DSA", pair(dsa.generate_private_key(2048))
    yield "RSA 2048", pair(rsa_key())
    yield "RSA 1024", pair(rsa_key(1024))
    yield "RSA 4096", pair(rsa_key(4096))
    yield "RSA e=3", pair(rsa_key(2048, 3))
    yield "RSA e large", pair(rsa_key(2048, 2**32 + 1))
    yield "RSA e larger", pair(rsa_key(2048, 2**40 + 1))
    restricted = Certificate("web.example", key=rsa_key(), pss=True)
    yield "RSA-PSS", (restricted.pem, restricted.key_pem)
    for bits in (2040, 3072, 8192, 8256, 16384, 16448):
        yield f"RSA {bits}", pair(rsa_key(bits))
    yield "self-signed", pair(P256, signer=P256)
    yield "signed by Ed448", pair(P256, signer=ed448.Ed448PrivateKey.generate(), hash=lambda: None)
    yield "SHA-512", pair(P256, hash=hashes.SHA512)
    yield "expired", pair(P256, valid=(NOW - 3 * DAY, NOW - DAY))
    yield "not valid yet", pair(P256, valid=(NOW + DAY, NOW + 3 * DAY))
    yield "CA", pair(P256, x509.BasicConstraints(ca=True, path_length=None), usage("key_cert_sign"))
    yield "signs", pair(P256, usage("digital_signature"))
    yield "Ed25519 only key agreement", pair(ed25519.Ed25519PrivateKey.generate(), usage("key_agreement"))
    yield "only key agreement", pair(P256, usage("key_agreement"))
    yield "RSA signs", pair(rsa_key(), usage("digital_signature", "key_encipherment"))
    yield "RSA only encipherment", pair(rsa_key(), usage("key_encipherment"))
    yield "RSA no usage at all", pair(rsa_key(), usage("crl_sign"))
    yield "must-staple", pair(P256, x509.TLSFeature([x509.TLSFeatureType.status_request]))
    yield "must-staple-v2", pair(P256, x509.TLSFeature([x509.TLSFeatureType.status_request_v2]))
    yield "client only", pair(P256, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
    good, key = pair(P256)
    other = certificate(CA_KEY)
    yield "chain", (good + other, key)
    yield "chain in the wrong order", (other + good, key)
    yield "leaf twice", (good + good, key)
    yield "unrelated in the chain", (good + certificate(rsa_key()), key)
    yield "P-224 above", (good + certificate(ec.generate_private_key(ec.SECP224R1())), key)
    yield "text around", (f"Bag Attributes\n  friendlyName: x\n{good}\nbye\n", f"# key\n{key}\n")
    yield "key in tls.crt", (key + good, key)
    yield "certificate in tls.key", (good, good + key)
    yield (
        "EC parameters",
        (
            good,
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
            + key_pem(P256, PrivateFormat.TraditionalOpenSSL),
        ),
    )
    yield "SEC 1 key", (good, key_pem(P256, PrivateFormat.TraditionalOpenSSL))
    yield "PKCS 1 key", (certificate(rsa_key()), key_pem(rsa_key(), PrivateFormat.TraditionalOpenSSL))
    yield "two keys", (good, key_pem(CA_KEY) + key)
    yield "own key first", (good, key + key_pem(CA_KEY))
    yield "encrypted key", (good, key_pem(P256, encryption=BestAvailableEncryption(b"x")))
    yield "encrypted SEC 1 key", (good, key_pem(P256, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"x")))
    yield "carriage returns", (good.replace("\n", "\r\n"), key.replace("\n", "\r\n"))
    yield (
        "one long line",
        ("-----BEGIN CERTIFICATE-----\n" + "".join(good.splitlines()[1:-1]) + "\n-----END CERTIFICATE-----\n", key),
    )
    yield "X509 CERTIFICATE", (good.replace(" CERTIFICATE", " X509 CERTIFICATE"), key)
    yield "TRUSTED CERTIFICATE", (good.replace(" CERTIFICATE", " TRUSTED CERTIFICATE"), key)
    yield "byte order mark", ("\ufeff" + good, "\ufeff" + key)
    yield "no newline at the end", (good.rstrip(), key.rstrip())
    yield "indented", (good.replace("\n", "\n  "), key)
    for name in (
        "version-7",
        "version-2",
        "common-name-not-utf-8",
        "subject-malformed",
        "extension-malformed",
        "followed-by-more",
    ):
        yield name, (pem(odd_ders()[name]).decode(), valid().key_pem)
    yield "odd certificate above", (good + pem(odd_ders()["version-2"]).decode(), key)
    yield "odd subject above", (good + pem(odd_ders()["common-name-not-utf-8"]).decode(), key)
    yield "no certificate above", (good + pem(b"no certificate").decode(), key)
    yield "another key", (good, key_pem(CA_KEY))
    numbers = base64.b64decode("".join(key_pem(rsa_key(), PrivateFormat.TraditionalOpenSSL).splitlines()[1:-1]))
    p = rsa_key().private_numbers().p.to_bytes(128, "big")
    yield (
        "RSA numbers that do not fit",
        (certificate(rsa_key()), pem(numbers.replace(p, p[:-1] + bytes([p[-1] ^ 2])), "RSA PRIVATE KEY").decode()),
    )


CASES = dict(_cases())
