"""A backend may send anything, at any pace, and all of its problems are reported at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from lasthop.base.api.meta import Key
from lasthop.edge.probe.checks import check_endpoint
from lasthop.edge.probe.handshake import Expectation, NoHandshake, glance, identity
from lasthop.edge.probe.result import EndpointResult
from lasthop.engine.plan.tls import Anchors, BackendTLS, San, SanType
from tests.backends import backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.odd_certificates import odd_ders
from tests.servers import Handler, say_nothing, server

CA = Certificate("CA", ca=True)
GOOD = Certificate("good", CA, sans=dns("api.example"))
DER = GOOD.certificate.public_bytes(Encoding.DER)
TLS = BackendTLS(
    Key("BackendTLSPolicy", "shop", "api"), "api.example", Anchors(CA.pem.encode()), (San(SanType.DNS, "api.example"),)
)
HANDSHAKE_RECORD, HELLO_REQUEST, SERVER_HELLO, CERTIFICATE = 22, 0, 2, 11
RECORD = 16384


def checked(port: int, timeout: float = 5.0) -> EndpointResult:
    return check_endpoint(("127.0.0.1", port), Expectation(TLS, (), None), NOW.timestamp(), timeout)


def failing(result: EndpointResult) -> list[str]:
    return [check.name for check in result.checks if check.state == "fail"]


def message(kind: int, body: bytes) -> bytes:
    """A handshake message in as many records as it takes."""
    framed = bytes([kind]) + len(body).to_bytes(3) + body
    pieces = (framed[at : at + RECORD] for at in range(0, len(framed), RECORD))
    return b"".join(bytes([HANDSHAKE_RECORD, 3, 3]) + len(piece).to_bytes(2) + piece for piece in pieces)


def showing(*certificates: bytes) -> Handler:
    """A server that speaks TLS 1.2 up to its Certificate message."""
    hello = b"\x03\x03" + bytes(32) + b"\x00" + b"\xc0\x2b" + b"\x00" + b"\x00\x05\xff\x01\x00\x01\x00"
    listed = b"".join(len(der).to_bytes(3) + der for der in certificates)

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(message(SERVER_HELLO, hello) + message(CERTIFICATE, len(listed).to_bytes(3) + listed))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65536)

    return handle


@pytest.mark.parametrize("odd", ["", *odd_ders()])
def test_a_malformed_certificate_fails_the_chain_or_is_read(odd: str) -> None:
    with server(None, showing(odd_ders()[odd] if odd else b"nonsense")) as port:
        result = checked(port)
    assert "chain" in failing(result) or (odd, failing(result)) == ("huge", ["tls"])


def test_a_malformed_certificate_above_the_backends_own_fails_the_chain() -> None:
    with server(None, showing(DER, b"nonsense")) as port:
        result = checked(port)
    assert failing(result) == ["chain"]
    assert "it presents a certificate that cannot be read" in result.checks[-1].found


def test_a_silent_server_does_not_speak_tls() -> None:
    with server(None, say_nothing) as port:
        report = checked(port, 0.2)
    assert [(check.name, check.state) for check in report.checks] == [("connect", "pass"), ("tls", "fail")]
    assert "no answer within 0.2 s" in report.checks[1].found


def test_a_slow_sender_delays_no_others() -> None:
    def dribble(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for byte in message(SERVER_HELLO, bytes(16000)):
                connection.sendall(bytes([byte]))
                time.sleep(0.01)

    with server(None, dribble) as port:
        begin = time.monotonic()
        report = checked(port, 0.3)
    assert "no answer within 0.3 s" in report.checks[1].found
    assert time.monotonic() - begin < 60, "160 s, if each byte were waited for"


def test_an_endless_sender_is_cut_off() -> None:
    ignored = message(HELLO_REQUEST, b"") * 1000

    def flood(connection: socket.socket) -> None:
        connection.recv(65536)
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(ignored)

    with server(None, flood) as port:
        report = checked(port, 0.3)
    assert "no answer within 0.3 s" in report.checks[1].found


def test_one_handshake_shows_all_that_is_wrong() -> None:
    wrong = Certificate(
        "wrong", sans=dns("other.example"), valid=(NOW - 9 * DAY, NOW - DAY), usage=ExtendedKeyUsageOID.CLIENT_AUTH
    )
    with backend(wrong.server_context()) as running:
        assert failing(checked(running.port)) == ["chain", "dates", "names"]
        assert len(running.connections) == 1


def test_certificates_that_openssl_refuses_are_not_tried() -> None:
    with backend(GOOD.server_context()) as running:
        address = ("127.0.0.1", running.port)
        assert checked(running.port).passes
        odd = check_endpoint(address, Expectation(TLS, (), identity(b"no certificate", b"no key")), NOW.timestamp(), 5)
    assert not odd.passes
    assert [check.name for check in odd.checks] == ["tls"]
    assert "this machine's OpenSSL" in odd.checks[0].found


@pytest.mark.parametrize(("http", "state"), [(True, "fail"), (False, "warn")])
def test_a_server_that_closes_right_after_the_handshake_does_not_serve_http(http: bool, state: str) -> None:
    with server(GOOD.server_context(), lambda connection: None) as port:
        report = check_endpoint(("127.0.0.1", port), Expectation(TLS, (), None, http), NOW.timestamp(), 5.0)
    last = report.checks[-1]
    assert (last.name, last.state) == ("open", state) and "right after the handshake" in last.found
    assert "backend's log" in last.remedy and report.passes is not http


def test_a_server_that_requests_a_client_certificate_and_closes_requires_one() -> None:
    context = GOOD.server_context()
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=CA.pem)
    with server(context, lambda connection: None) as port:
        result = checked(port)
    assert failing(result) == ["client certificate"]
    assert "closes the connection right after the handshake" in result.checks[-1].found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_request_with_a_waiting_caller_has_priority(version: ssl.TLSVersion) -> None:
    context = GOOD.server_context()
    context.minimum_version = context.maximum_version = version
    with server(context, say_nothing) as port:
        assert failing(checked(port)) == []


@pytest.mark.parametrize("name", ["api.example", f"{'l' * 64}.example"])
def test_the_name_of_a_policy_is_sent_as_envoy_sends_it(name: str) -> None:
    context, names = GOOD.server_context(), []
    context.sni_callback = lambda connection, name, _: names.append(name)
    with server(context, say_nothing) as port:
        seen = glance("127.0.0.1", port, name)
    assert (seen.version, names) == ("TLSv1.3", [name])


def test_a_server_name_that_is_not_a_name_is_refused() -> None:
    with server(GOOD.server_context(), say_nothing) as port, pytest.raises(NoHandshake, match="is not a DNS name"):
        glance("127.0.0.1", port, "\u00e9..x")
