"""What a backend sends is looked at before anybody has checked it, and nothing of it ends the command."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from lasthop.api.meta import Key
from lasthop.plan.tls import Anchors, BackendTLS, San, SanType
from lasthop.probe.certificate_message import certificates
from lasthop.probe.checks import tried
from lasthop.probe.handshake import identity
from lasthop.probe.values import Wish
from tests.backends import backend
from tests.certificates import Certificate, dns
from tests.servers import say_nothing, server

CA = Certificate("CA", ca=True)
GOOD = Certificate("good", CA, sans=dns("api.example"))
DER = GOOD.certificate.public_bytes(Encoding.DER)


def listed(*entries: bytes, tls13: bool) -> bytes:
    """The body of a Certificate message."""
    extensions = b"\x00\x00" if tls13 else b""
    inside = b"".join(len(entry).to_bytes(3) + entry + extensions for entry in entries)
    return (b"\x00" if tls13 else b"") + len(inside).to_bytes(3) + inside


def test_the_certificates_of_a_message_are_found_in_both_formats() -> None:
    for tls13 in (False, True):
        assert list(certificates(listed(DER, b"x" * 10, tls13=tls13))) == [DER, b"x" * 10]


@given(body=st.binary(max_size=40), tls13=st.booleans(), cut=st.integers(0, 60))
def test_a_message_that_is_cut_off_or_nonsense_is_read_as_far_as_it_goes(body: bytes, tls13: bool, cut: int) -> None:
    list(certificates(body))
    assert len(list(certificates(listed(body, body, tls13=tls13)[:cut]))) <= 20


TLS = BackendTLS(
    Key("BackendTLSPolicy", "shop", "api"), "api.example", Anchors(CA.pem.encode()), (San(SanType.DNS, "api.example"),)
)


def test_who_accepts_and_says_nothing_does_not_speak_tls() -> None:
    with server(None, say_nothing) as port:
        found = tried(("127.0.0.1", port), Wish(TLS, (), None), 0.0, 0.2)
    assert [(check.name, check.state) for check in found.checks] == [("connect", "pass"), ("tls", "fail")]
    assert "no answer within 0.2 s" in found.checks[1].found


def test_what_openssl_does_not_take_is_not_tried() -> None:
    with backend(GOOD.server_context()) as running:
        place = ("127.0.0.1", running.port)
        assert tried(place, Wish(TLS, (), None), GOOD.certificate.not_valid_before_utc.timestamp() + 60, 5).passes
        odd = tried(place, Wish(TLS, (), identity(b"no certificate", b"no key")), 0.0, 5)
    assert not odd.passes
    assert [check.name for check in odd.checks] == ["tls"]
    assert "this machine's OpenSSL" in odd.checks[0].found
