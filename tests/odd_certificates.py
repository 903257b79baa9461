"""Builds malformed certificates and keys: DER that no CA would issue, and bytes that are not certificates."""

from __future__ import annotations

import base64
import functools

from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import strategies as st

from tests.certificates import DAY, Certificate, dns
from tests.world import NOW

VERSION_3 = bytes.fromhex("a003020102")


@functools.cache
def valid() -> Certificate:
    return Certificate("odd", sans=dns("odd.example"), valid=(NOW - DAY, NOW + DAY))


@functools.cache
def odd_ders() -> dict[str, bytes]:
    """Each loads or almost loads; some raise only when a part is looked at."""
    der = valid().certificate.public_bytes(Encoding.DER)
    common_name = b"\x06\x03\x55\x04\x03\x0c\x03odd"
    assert VERSION_3 in der and common_name in der
    return {
        "version-7": der.replace(VERSION_3, bytes.fromhex("a003020106")),
        "version-2": der.replace(VERSION_3, bytes.fromhex("a003020101")),
        "version-negative": der.replace(VERSION_3, bytes.fromhex("a0030201ff")),
        "common-name-not-utf-8": der.replace(common_name, common_name[:-3] + b"\xff\xfe\xfd"),
        "common-name-of-control-characters": der.replace(common_name, common_name[:-3] + b"\x1b[A"),
        "subject-malformed": der.replace(common_name, common_name[:5] + b"\x30\x03odd"),
        "subject-with-an-empty-oid": der.replace(common_name, b"\x06\x03\xff\xff\xff" + common_name[5:]),
        "dates-malformed": der.replace(b"\x17\x0d2", b"\x17\x0dx"),
        "dates-that-do-not-exist": der.replace(b"\x17\x0d2611", b"\x17\x0d2613"),
        "key-off-the-curve": der.replace(valid().key.public_key().public_numbers().x.to_bytes(32, "big"), bytes(32)),
        "curve-unknown": der.replace(bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d03017f")),
        "extension-malformed": der.replace(b"odd.example", b"odd\xff\xff\xff\xff\xff\xff\xff\xff"),
        "truncated": der[:-20],
        "followed-by-more": der + b"\x00",
        "empty": b"",
        "huge": der + bytes(200_000),
    }


def pem(der: bytes, label: str = "CERTIFICATE") -> bytes:
    lines = base64.encodebytes(der)
    return f"-----BEGIN {label}-----\n".encode() + lines + f"-----END {label}-----\n".encode()


def _with(der: bytes, at: int, value: int) -> bytes:
    at %= len(der)
    return der[:at] + bytes([value]) + der[at + 1 :]


@st.composite
def mutated_ders(draw: st.DrawFn) -> bytes:
    der = valid().certificate.public_bytes(Encoding.DER)
    for _ in range(draw(st.integers(1, 3))):
        der = _with(der, draw(st.integers(0, 1000)), draw(st.integers(0, 255)))
    return der


ODD_PEMS: st.SearchStrategy[bytes] = st.one_of(
    st.sampled_from(sorted(odd_ders().values())).map(pem),
    mutated_ders().map(pem),
    st.binary(max_size=200).map(pem),
    st.binary(max_size=200),
    st.sampled_from([b"-----BEGIN CERTIFICATE-----\n" * 3, b"-----END CERTIFICATE-----", b"\xef\xbb\xbf"]),
    mutated_ders().map(lambda der: valid().pem.encode() + pem(der)),
)
"""Possible contents of a `ca.crt` or a `tls.crt`."""


@st.composite
def odd_keys(draw: st.DrawFn) -> bytes:
    key = base64.b64decode("".join(valid().key_pem.splitlines()[1:-1]))
    mutated = _with(key, draw(st.integers(0, 1000)), draw(st.integers(0, 255)))
    choices = [pem(mutated, "PRIVATE KEY"), mutated, valid().key_pem.encode(), b"", pem(mutated, "EC PRIVATE KEY")]
    chosen: bytes = draw(st.sampled_from(choices))
    return chosen
