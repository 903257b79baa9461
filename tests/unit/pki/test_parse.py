"""Whatever a Secret or a ConfigMap holds is parsed or refused in words, and never raises."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings

from lasthop.pki import parse
from lasthop.pki.parse import Extensions, Unreadable
from tests.odd_certificates import ODD_PEMS, odd_ders, odd_keys, pem, valid


def test_everything_that_is_asked_of_a_certificate_is_read_at_once() -> None:
    (found,) = parse.certificates(valid().pem.encode())  # type: ignore[misc]
    assert (found.common_name, found.subject, found.issuer, found.self_issued) == ("odd", "CN=odd", "CN=odd", True)
    assert found.key == "EC secp256r1"
    assert found.der == valid().certificate.public_bytes(Encoding.DER)
    assert found.pem == valid().pem.encode()
    assert (found.not_before, found.not_after) == (
        valid().certificate.not_valid_before_utc.timestamp(),
        valid().certificate.not_valid_after_utc.timestamp(),
    )
    assert found.extensions == Extensions(names=("DNS odd.example",), dns_names=("odd.example",))
    assert (found.signs, found.must_staple) == (True, False)
    key = parse.private_key(valid().key_pem.encode())
    assert not isinstance(key, Unreadable)
    assert (key.key, key.spki) == (found.key, found.spki)


@pytest.mark.parametrize(
    "name, message",
    [
        ("version-7", "has something that is not a certificate"),
        ("version-2", "has something that is not a certificate"),
        ("common-name-not-utf-8", "has a subject or issuer that cannot be read"),
        ("subject-malformed", "has a subject or issuer that cannot be read"),
        ("curve-unknown", "has a public key of an unknown kind"),
        ("truncated", "has something that is not a certificate"),
        ("huge", "has something that is not a certificate"),
    ],
)
def test_an_odd_certificate_is_refused_in_words(name: str, message: str) -> None:
    assert parse.certificates(pem(odd_ders()[name])) == Unreadable(f"{message} (PEM block 1 of 1)")


def test_an_extension_that_cannot_be_read_leaves_the_rest_readable() -> None:
    (found,) = parse.certificates(pem(odd_ders()["extension-malformed"]))  # type: ignore[misc]
    assert (found.common_name, found.extensions) == ("odd", Unreadable("has extensions that cannot be read"))


def test_names_are_printable_and_short() -> None:
    (found,) = parse.certificates(pem(odd_ders()["common-name-of-control-characters"]))  # type: ignore[misc]
    assert found.common_name == "\\x1b[A"
    assert parse.printable("x" * 1000) == "x" * parse.SHOWN + "…"


def test_blocks_are_found_in_linear_time() -> None:
    """A regular expression looked for the end of each of them: minutes for one megabyte."""
    assert parse.certificates(b"-----BEGIN CERTIFICATE-----" * 40_000) == Unreadable("has a truncated certificate")


def test_a_certificate_that_is_listed_twice_counts_once() -> None:
    one, other = valid().pem.encode(), pem(odd_ders()["extension-malformed"])
    found = parse.certificates(one + b"a remark\n" + other + one.replace(b"\n", b"\r\n"))
    assert not isinstance(found, Unreadable)
    assert [each.pem for each in found] == [one, found[1].pem]


@settings(max_examples=300, deadline=None)
@given(ODD_PEMS, odd_keys())
def test_nothing_that_a_stranger_writes_raises(certificate: bytes, key: bytes) -> None:
    parse.certificates(certificate)
    parse.certificate(certificate)
    parse.private_key(key)
    parse.private_key(certificate)
