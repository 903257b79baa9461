"""Any content of a Secret or a ConfigMap is parsed or rejected with a reason, and never raises."""

from __future__ import annotations

import functools
import hashlib
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lasthop.base.pki import parse
from lasthop.base.pki.parse import Anchor, Extensions, Unreadable
from tests.odd_certificates import ODD_PEMS, odd_ders, odd_keys, pem, valid

Odd = tuple[x509.ObjectIdentifier, bytes]
EXTENSIONS = Unreadable("has extensions that cannot be read")
UNKNOWN = (x509.ObjectIdentifier("1.2.3"), b"?")
SAN = (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"?")
"""One that cryptography cannot read."""
NAMED = (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3003820161"))
CA = (ExtensionOID.BASIC_CONSTRAINTS, bytes.fromhex("30030101ff"))
NO_CA = (ExtensionOID.BASIC_CONSTRAINTS, bytes.fromhex("3000"))
NEVER_SIGNS = (ExtensionOID.KEY_USAGE, bytes.fromhex("03020106"))
STAPLE = (ExtensionOID.TLS_FEATURE, bytes.fromhex("3003020105"))
STAPLE_AND_MORE = (ExtensionOID.TLS_FEATURE, bytes.fromhex("3006020105020163"))
NOTHING = (ExtensionOID.KEY_USAGE, b"")
TWO = (ExtensionOID.KEY_USAGE, bytes.fromhex("030201060500"))


@functools.cache
def with_extensions(*extensions: tuple[x509.ObjectIdentifier, bytes]) -> bytes:
    """Makes a certificate with these extensions, of any content, in DER."""
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "no, common\x07 name")])
    key = ec.derive_private_key(7, ec.SECP256R1())
    dates = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, *dates)
    for oid, value in extensions:
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


SERIAL = bytes.fromhex("a003020102020107")
DUPLICATE = with_extensions(UNKNOWN, STAPLE, (x509.ObjectIdentifier("1.2.4"), b"?")).replace(
    bytes.fromhex("06022a04"), bytes.fromhex("06022a03")
)


def test_all_fields_of_a_certificate_are_read_at_once() -> None:
    (certificate,) = parse.certificates(valid().pem.encode())  # type: ignore[misc]
    assert (certificate.common_name, certificate.subject, certificate.issuer, certificate.self_issued) == (
        "odd",
        "CN=odd",
        "CN=odd",
        True,
    )
    assert certificate.key == "EC secp256r1"
    assert certificate.der == valid().certificate.public_bytes(Encoding.DER)
    assert certificate.pem == valid().pem.encode()
    assert (certificate.not_before, certificate.not_after) == (
        valid().certificate.not_valid_before_utc.timestamp(),
        valid().certificate.not_valid_after_utc.timestamp(),
    )
    assert certificate.extensions == Extensions(names=("DNS odd.example",), dns_names=("odd.example",))
    assert (certificate.signs, certificate.must_staple) == (True, False)
    key = parse.private_key(valid().key_pem.encode())
    assert not isinstance(key, Unreadable)
    assert (key.key, key.spki) == (certificate.key, certificate.spki)


@pytest.mark.parametrize(
    "name, message",
    [
        ("version-7", "has a certificate that cannot be read"),
        ("version-2", "has a certificate that cannot be read"),
        ("common-name-not-utf-8", "has a subject or issuer that cannot be read"),
        ("subject-malformed", "has a subject or issuer that cannot be read"),
        ("curve-unknown", "has a public key of an unknown kind"),
        ("truncated", "has a certificate that cannot be read"),
        ("huge", "has a certificate that cannot be read"),
    ],
)
def test_an_odd_certificate_is_refused_with_a_readable_reason(name: str, message: str) -> None:
    assert parse.certificates(pem(odd_ders()[name])) == Unreadable(f"{message} (PEM block 1 of 1)")


def test_an_extension_that_cannot_be_read_leaves_the_rest_readable() -> None:
    (certificate,) = parse.certificates(pem(odd_ders()["extension-malformed"]))  # type: ignore[misc]
    assert (certificate.common_name, certificate.extensions) == ("odd", Unreadable("has extensions that cannot be read"))


@pytest.mark.parametrize(
    "der, signs, must_staple, readable",
    [
        (with_extensions(), True, False, True),
        (with_extensions(UNKNOWN, NEVER_SIGNS), False, False, True),
        (with_extensions(STAPLE), True, True, True),
        (with_extensions(SAN, NEVER_SIGNS), False, False, False),
        (with_extensions(STAPLE_AND_MORE, NEVER_SIGNS), False, True, False),
        (DUPLICATE, True, True, False),
        (with_extensions(STAPLE).replace(SERIAL, SERIAL[:-1] + b"\x00"), True, True, True),
        (with_extensions(STAPLE).replace(SERIAL, SERIAL[:-1] + b"\xff"), True, True, True),
    ],
)
def test_key_usage_is_read_beside_any_other_extensions(der: bytes, signs: bool, must_staple: bool, readable: bool) -> None:
    certificate = parse.certificate(der)
    assert not isinstance(certificate, Unreadable)
    assert (certificate.signs, certificate.must_staple, certificate.extensions != EXTENSIONS) == (signs, must_staple, readable)
    assert certificate.common_name == certificate.subject == "O=no\\, common\\x07 name"
    assert (certificate.der, certificate.sha256) == (der, hashlib.sha256(der).digest())


@pytest.mark.parametrize("extensions", [(NOTHING,), (TWO,), (SAN, NOTHING)])
def test_a_malformed_key_usage_is_refused(extensions: tuple[tuple[x509.ObjectIdentifier, bytes], ...]) -> None:
    certificates = parse.certificates(pem(with_extensions()) + pem(with_extensions(*extensions)))
    assert certificates == Unreadable("has a keyUsage that cannot be read (PEM block 2 of 2)")


def test_names_are_printable_and_short() -> None:
    (certificate,) = parse.certificates(pem(odd_ders()["common-name-of-control-characters"]))  # type: ignore[misc]
    assert certificate.common_name == "\\x1b[A"
    assert parse.short_name("x" * 1000) == "x" * parse.SHOWN + "…"


def test_blocks_are_found_in_linear_time() -> None:
    """A regular expression looked for the end of each of them: minutes for one megabyte."""
    assert parse.certificates(b"-----BEGIN CERTIFICATE-----" * 40_000) == Unreadable("has a truncated certificate")


def test_a_certificate_that_is_listed_twice_counts_once() -> None:
    one, other = valid().pem.encode(), pem(odd_ders()["extension-malformed"])
    certificates = parse.certificates(one + b"a remark\n" + other + one.replace(b"\n", b"\r\n"))
    assert not isinstance(certificates, Unreadable)
    assert [certificate.pem for certificate in certificates] == [one, certificates[1].pem]


ALSO_ODD = [with_extensions(*extension) for extension in ((NOTHING,), (TWO,), (SAN, NEVER_SIGNS), (SAN, NOTHING))] + [
    DUPLICATE
]


@settings(max_examples=300, deadline=None)
@given(ODD_PEMS | st.lists(st.sampled_from(ALSO_ODD).map(pem), max_size=3).map(b"".join))
def test_anchors_are_the_same_certificates_or_wrong_in_the_same_way(text: bytes) -> None:
    certificates, anchors = parse.certificates(text), parse.anchors(text)
    if isinstance(certificates, Unreadable):
        assert anchors == certificates
    else:
        assert not isinstance(anchors, Unreadable)
        assert {pem: replace(anchor, leaf=False) for pem, anchor in anchors.items()} == {
            certificate.pem: Anchor(
                certificate.common_name,
                certificate.not_before,
                certificate.not_after,
                certificate.sha256,
                certificate.weakness,
            )
            for certificate in certificates
        }


@pytest.mark.parametrize(
    ("extensions", "leaf"), [((), False), ((CA,), False), ((NO_CA,), True), ((NAMED,), True), ((NAMED, CA), False)]
)
def test_an_anchor_with_names_or_without_the_right_to_sign_is_a_leaf(extensions: tuple[Odd, ...], leaf: bool) -> None:
    anchors = parse.anchors(pem(with_extensions(*extensions)))
    assert not isinstance(anchors, Unreadable)
    assert [anchor.leaf for anchor in anchors.values()] == [leaf]


@settings(max_examples=300, deadline=None)
@given(ODD_PEMS, odd_keys())
def test_nothing_that_a_stranger_writes_raises(certificate: bytes, key: bytes) -> None:
    parse.certificates(certificate)
    parse.certificate(certificate)
    parse.private_key(key)
    parse.private_key(certificate)
