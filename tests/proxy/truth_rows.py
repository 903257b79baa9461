"""Defines working and failing backends, one row each: the server, the policy, and the client's result."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import grpc
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.backends import backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy import grpc_echo
from tests.proxy.certs import CA, LONG, OTHER_CA, asking, issued, key_pin, with_alpn, with_sans
from tests.proxy.documents import Document
from tests.proxy.echo import echo
from tests.proxy.lasthop import Lasthop
from tests.proxy.streams import asked
from tests.servers import Handler, hang_up, read_and_hang_up, say_nothing, server

Serving = Callable[[contextlib.ExitStack, str], tuple[int, ...]]
"""Starts what a row is about, under a name, and returns its ports."""


class How(StrEnum):
    """The request of a client."""

    HTTP = "HTTPRoute"
    WEBSOCKET = "WebSocket"
    GRPC = "GRPCRoute"
    TLS = "TLSRoute"
    PASSTHROUGH = "passthrough"
    TCP = "TCPRoute"

    @property
    def route(self) -> str:
        return {How.WEBSOCKET: "HTTPRoute", How.PASSTHROUGH: "TLSRoute"}.get(self, str(self))


class Fate(StrEnum):
    """The result of a row for its clients. The values are the words of `Health`, but for REFUSED."""

    WORKING = "working"
    PARTLY = "partly failing"
    FAILING = "failing"
    REFUSED = "refused"
    """By Lasthop: the policy is invalid, and nobody connects."""


@dataclasses.dataclass(frozen=True)
class Row:
    serves: Serving
    fate: Fate = Fate.WORKING
    words: str = ""
    """A part of every report of the failure."""
    how: How = How.HTTP
    refs: tuple[str | Document, ...] | None = ("ca",)
    """The policy's status; None without a policy."""
    more: tuple[Document, ...] = ()
    manner: str = "verified"
    outcome: str = "success"
    """The label of its handshakes in metrics; empty without handshakes."""
    handshake: bool = True
    """It is the handshake that fails, not the connection before it."""
    request: bool = False
    """Connections are made, and the gateway answers requests with an error of its own."""
    options: tuple[tuple[str, str], ...] = ()
    """Of the policy."""
    xbackend: bool = False
    answers: tuple[int, int] = (200, 503)
    """What a client of HTTP sees, of what works and of what fails."""
    requests: int = 4
    """If one of two endpoints works, one failure proves nothing yet; a slow one suffices."""

    @property
    def bad(self) -> bool:
        return self.fate is not Fate.WORKING

    def documents(self, name: str, ports: tuple[int, ...]) -> list[Document]:
        if self.xbackend:
            return [docs.xbackend(name, ports[0], docs.verified("ca")), docs.route(name, docs.to_xbackend(name))]
        documents = [docs.service(name), *docs.endpoints(name, *ports), *self.more, self._route(name)]
        return (
            documents
            if self.refs is None
            else [*documents, docs.policy(name, "api.example", *self.refs, options=dict(self.options))]
        )

    def _route(self, name: str) -> Document:
        match self.how:
            case How.GRPC:
                return grpc_echo.route(name, grpc_echo.rule(docs.to(name)))
            case How.TLS:
                return docs.stream_route("TLSRoute", name, docs.to(name), listener="ends", hosts=(f"{name}.test",))
            case How.PASSTHROUGH:
                return docs.stream_route("TLSRoute", name, docs.to(name), listener="pass", hosts=(f"{name}.pass.test",))
            case How.TCP:
                return docs.stream_route("TCPRoute", name, docs.to(name), listener=name)
        return docs.route(name, docs.to(name))

    def ask(self, lasthop: Lasthop, name: str, port: int) -> Fate:
        """Sends one request, and returns its result. `port` is the port of a stream's listener."""
        match self.how:
            case How.HTTP:
                status = lasthop.get(name).status
            case How.WEBSOCKET:
                status = upgraded(lasthop, name)
            case How.GRPC:
                code = grpc_echo.call(lasthop, f"{name}.test").code
                status = {grpc.StatusCode.OK: 200, grpc.StatusCode.UNAVAILABLE: 503}[code]
            case How.TLS | How.TCP | How.PASSTHROUGH:
                host = {How.TLS: f"{name}.test", How.PASSTHROUGH: f"{name}.pass.test"}.get(self.how, "")
                return Fate.WORKING if asked(port, host) == name else Fate.FAILING
        works, fails = self.answers
        return {works: Fate.WORKING, fails: Fate.FAILING, 500: Fate.REFUSED}[status]


def upgraded(lasthop: Lasthop, name: str) -> int:
    """Returns the status of a WebSocket request, and exchanges data over the connection if it opens."""
    wants = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"
    with socket.create_connection(("127.0.0.1", lasthop.port), timeout=20) as client:
        client.sendall(f"GET / HTTP/1.1\r\nhost: {name}.test\r\n{wants}\r\n".encode())
        status = int(client.recv(4096).split()[1])
        if status == 101:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
        return status


# --- served backends -------------------------------------------------------------------------------------------------


def tls(make: Callable[[], ssl.SSLContext], **settings: Any) -> Serving:
    return lambda stack, name: (stack.enter_context(backend(make(), name=name, **settings)).port,)


def plain(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    return (stack.enter_context(backend(name=name)).port,)


def nobody(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    return (free_port(),)


def no_endpoints(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    return ()


def raw(handler: Handler) -> Serving:
    return lambda stack, name: (stack.enter_context(server(None, handler)),)


def closing_at_once(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    """A backend whose handshakes are in order, and which closes the connection then."""
    return (stack.enter_context(server(issued(), lambda connection: None)),)


def not_http(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    """A backend whose handshakes are in order, and which sends HTTP/2 frames that ALPN has not chosen."""

    def frames(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"\0\0\0\4\0\0\0\0\0" * 4)

    return (stack.enter_context(server(issued(), frames)),)


def both(*servings: Serving) -> Serving:
    return lambda stack, name: tuple(port for serving in servings for port in serving(stack, name))


def grpc_server(certificate: Certificate | None) -> Serving:
    return lambda stack, name: (stack.enter_context(grpc_echo.server(name, certificate)).port,)


def failing_inside(stack: contextlib.ExitStack, name: str) -> tuple[int, ...]:
    """A backend whose connections are in order, and which answers each request with an error."""
    served = stack.enter_context(echo(name, issued()))
    served.plan = "503"
    return (served.port,)


def limited(ciphers: str, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = issued()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers(ciphers)
    return context


def leaf(*names: str, issuer: Certificate | None = CA) -> Certificate:
    return Certificate("backend", issuer, sans=dns(*(names or ("api.example",))), valid=LONG)


MIDDLE = Certificate("an intermediate", CA, ca=True, valid=LONG)
BELOW = leaf(issuer=MIDDLE)
GOOD, FOREIGN, SELF_SIGNED = leaf(), leaf(issuer=OTHER_CA), leaf(issuer=None)
PAST, FUTURE = (NOW - 9 * DAY, NOW - DAY), (NOW + DAY, NOW + 9 * DAY)
V1_1, V1_2 = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2
UNRECOGNIZED_NAME, NO_APPLICATION_PROTOCOL = 112, 120
"""TLS alerts."""

UNKNOWN_CA = "certificate is signed by an unknown CA"
OLD_NAME = "certificate is for old.example, policy shop/"
EXPIRED = "certificate has expired"
PLAIN = "backend does not speak TLS on this port"
REFUSED = "connection refused: nothing listens on the backend's port"
MTLS = "wants a client certificate"
MISSING = "ConfigMap shop/not-there does not exist"


def bad(serves: Serving, words: str, outcome: str = "untrusted", **settings: Any) -> Row:
    return Row(serves, Fate.FAILING, words, outcome=outcome, **settings)


def before_tls(serves: Serving, words: str, **settings: Any) -> Row:
    """A connection that fails before a handshake is tried."""
    return bad(serves, words, "", handshake=False, **settings)


def unanswered(serves: Serving, words: str, **settings: Any) -> Row:
    """Handshakes succeed, and no request is answered."""
    return bad(serves, words, "success", handshake=False, request=True, **settings)


def invalid(how: How = How.HTTP) -> Row:
    return Row(nobody, Fate.REFUSED, MISSING, how, ("not-there",), manner="failing closed", outcome="")


def waived(serves: Serving, waiver: str, *cas: str, **settings: Any) -> Row:
    return Row(serves, refs=(*cas, docs.own(waiver, "VerificationWaiver")), manner="waived", **settings)


def pinned(name: str, serves: Serving, certificate: Certificate, **settings: Any) -> Row:
    pins = docs.pin_set(name, key_pin(certificate))
    return Row(serves, refs=(docs.own(name, "PinSet"),), more=(pins,), manner="pinned only", **settings)


PLAINTEXT: dict[str, Any] = {"refs": None, "manner": "plaintext"}

ROWS = {
    # HTTP: what works.
    "good": Row(tls(issued)),
    "good-tls12": Row(tls(lambda: limited("ECDHE-ECDSA-AES128-GCM-SHA256", V1_2))),
    "with-intermediate": Row(tls(lambda: BELOW.server_context(MIDDLE))),
    "h2-only": Row(tls(lambda: with_alpn(issued(), "h2"), h2_only=True)),
    "pinned": pinned("pinned", tls(SELF_SIGNED.server_context), SELF_SIGNED),
    "waived-all": waived(tls(SELF_SIGNED.server_context), "all"),
    "waived-names": waived(tls(lambda: issued("old.example")), "names", "ca"),
    "waived-expiry": waived(tls(lambda: issued(valid=PAST)), "expiry", "ca"),
    "plaintext": Row(plain, outcome="", **PLAINTEXT),
    "own-errors": Row(failing_inside, answers=(503, 0)),
    "outside": Row(tls(issued), xbackend=True),
    # HTTP: failing backends.
    "wrong-ca": bad(tls(lambda: issued(issuer=OTHER_CA)), UNKNOWN_CA),
    "wrong-name": bad(tls(lambda: issued("old.example")), OLD_NAME, "wrong_name"),
    "expired": bad(tls(lambda: issued(valid=PAST)), EXPIRED),
    "not-yet": bad(tls(lambda: issued(valid=FUTURE)), "certificate is not valid yet"),
    "self-signed": bad(tls(SELF_SIGNED.server_context), "self-signed certificate"),
    "no-intermediate": bad(tls(BELOW.server_context), UNKNOWN_CA),
    "client-usage": bad(tls(lambda: issued(usage=ExtendedKeyUsageOID.CLIENT_AUTH)), "certificate is not for servers"),
    "cn-only": bad(tls(lambda: with_sans(cn="api.example")), "certificate has no subjectAltName", "wrong_name"),
    "not-pinned": pinned(
        "not-pinned",
        tls(GOOD.server_context),
        SELF_SIGNED,
        fate=Fate.FAILING,
        words="certificate is not one of those that policy shop/",
        outcome="not_pinned",
    ),
    "waived-names-foreign": waived(
        tls(FOREIGN.server_context), "names", "ca", fate=Fate.FAILING, words=UNKNOWN_CA, outcome="untrusted"
    ),
    "plaintext-port": bad(plain, PLAIN, "handshake_error"),
    "refused": before_tls(nobody, REFUSED),
    "no-endpoints": before_tls(no_endpoints, "backend has no ready endpoint"),
    "hangs-up": bad(raw(read_and_hang_up), "backend closed the connection during the TLS handshake", ""),
    "resets": bad(raw(hang_up), "backend reset the connection during the TLS handshake", ""),
    "closes": unanswered(closing_at_once, "backend closed the connection before it responded"),
    "not-http": unanswered(not_http, "backend's response is not valid HTTP", answers=(200, 502)),
    "plain-to-grpc": unanswered(grpc_server(GOOD), "backend reset the request before it responded"),
    "h2-alone": unanswered(
        tls(lambda: with_alpn(issued(), "h2"), h2_only=True),
        "backend closed the connection before it responded",
        options=(("lasthop.dev/alpn", "http/1.1"),),
    ),
    "silent": before_tls(raw(say_nothing), "connect timeout (TCP or TLS handshake)", requests=1),
    "mtls-12": bad(tls(lambda: asking(ssl.CERT_REQUIRED, V1_2)), MTLS, "handshake_error"),
    "mtls-13": bad(tls(lambda: asking(ssl.CERT_REQUIRED)), MTLS, "handshake_error"),
    "too-old": bad(tls(lambda: limited("ALL:@SECLEVEL=0", V1_1)), "no common TLS version", "handshake_error"),
    "no-cipher": bad(tls(lambda: limited("ECDHE-ECDSA-AES256-CCM", V1_2)), "no common TLS cipher", "handshake_error"),
    "no-alpn": bad(tls(issued, alert=NO_APPLICATION_PROTOCOL), "no common protocol with the backend", "handshake_error"),
    "no-sni": bad(tls(issued, alert=UNRECOGNIZED_NAME), "backend does not serve the hostname", "handshake_error"),
    "one-of-two": Row(
        both(tls(issued), tls(lambda: issued("old.example"))),
        Fate.PARTLY,
        "1 of 2 endpoints|certificate is for another name",
        outcome="wrong_name",
        requests=16,
    ),
    "plaintext-refused": before_tls(nobody, REFUSED, **PLAINTEXT),
    "outside-wrong-ca": bad(tls(lambda: issued(issuer=OTHER_CA)), UNKNOWN_CA, xbackend=True),
    "invalid": invalid(),
    # gRPC.
    "grpc": Row(grpc_server(GOOD), how=How.GRPC),
    "grpc-plaintext": Row(grpc_server(None), how=How.GRPC, outcome="", **PLAINTEXT),
    "grpc-wrong-name": bad(grpc_server(leaf("old.example")), OLD_NAME, "wrong_name", how=How.GRPC),
    "grpc-plaintext-port": bad(grpc_server(None), "TLS", "", how=How.GRPC),
    "grpc-refused": before_tls(nobody, REFUSED, how=How.GRPC),
    "grpc-invalid": invalid(How.GRPC),
    # WebSocket.
    "ws": Row(tls(lambda: with_alpn(issued(), "h2", "http/1.1")), how=How.WEBSOCKET, answers=(101, 503)),
    "ws-wrong-ca": bad(tls(lambda: issued(issuer=OTHER_CA)), UNKNOWN_CA, how=How.WEBSOCKET),
    "ws-plaintext": Row(plain, outcome="", how=How.WEBSOCKET, answers=(101, 503), **PLAINTEXT),
    # TLSRoute.
    "tls": Row(tls(issued), how=How.TLS),
    "tls-expired": bad(tls(lambda: issued(valid=PAST)), EXPIRED, how=How.TLS),
    "tls-plaintext-port": bad(plain, PLAIN, "handshake_error", how=How.TLS),
    "tls-refused": before_tls(nobody, REFUSED, how=How.TLS),
    "tls-mtls": bad(tls(lambda: asking(ssl.CERT_REQUIRED)), MTLS, "handshake_error", how=How.TLS),
    "tls-pass": Row(
        tls(lambda: issued("tls-pass.pass.test")), how=How.PASSTHROUGH, refs=None, manner="passthrough", outcome=""
    ),
    # TCPRoute.
    "tcp": Row(tls(issued), how=How.TCP),
    "tcp-plaintext": Row(plain, how=How.TCP, outcome="", **PLAINTEXT),
    "tcp-self-signed": bad(tls(SELF_SIGNED.server_context), "self-signed certificate", how=How.TCP),
    "tcp-waived": waived(tls(SELF_SIGNED.server_context), "all", how=How.TCP),
    "tcp-refused": before_tls(nobody, REFUSED, how=How.TCP, **PLAINTEXT),
}
