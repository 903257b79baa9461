"""Sessions, WebSocket and h2c."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from lasthop.engine.outputs.envoy.route_index import FROM
from tests.backends import Backend, Connection
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued, with_alpn
from tests.proxy.echo import Echo, ask, echo, rule, rules, service, to
from tests.proxy.lasthop import Lasthop


@pytest.fixture(scope="module")
def three(gateway: Lasthop) -> Iterator[list[Echo]]:
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(echo(f"endpoint-{n}")) for n in range(3)]
        gateway.load("sessions-services.yaml", *service("sessions", *(e.port for e in running)))
        yield running


def test_a_session_is_kept_by_a_cookie(gateway: Lasthop, three: list[Echo]) -> None:
    session = {"type": "Cookie", "cookie": {"name": "shop-session", "path": "/shop"}}
    lasting = {
        "type": "Cookie",
        "absoluteTimeout": "1h",
        "cookie": {"name": "lasting", "lifetimeType": "Permanent"},
    }
    gateway.load(
        "sessions.yaml",
        rules(
            "sessions",
            rule("/shop", to=[to("sessions")], sessionPersistence=session),
            rule("/lasting", to=[to("sessions")], sessionPersistence=lasting),
            rule("/unnamed", to=[to("sessions")], sessionPersistence={"cookie": {}}),
        ),
    )
    for path, name in (("/shop", "shop-session="), ("/lasting", "lasting="), ("/unnamed", "lasthop-session-")):
        first = ask(gateway, "sessions.test", path)
        cookie, *attributes = first.headers["set-cookie"].split("; ")
        assert cookie.startswith(name)
        assert f"Path={'/shop' if path == '/shop' else '/'}" in attributes
        assert ("Max-Age=3600" in attributes) == (path == "/lasting")
        again = {ask(gateway, "sessions.test", path, headers={"cookie": cookie}).seen["backend"] for _ in range(15)}
        assert again == {first.seen["backend"]}
    assert len({ask(gateway, "sessions.test", "/shop").seen["backend"] for _ in range(30)}) == 3


def test_a_session_is_kept_by_a_header(gateway: Lasthop, three: list[Echo]) -> None:
    session = {"type": "Header", "header": {"name": "x-session"}}
    gateway.load("sessions.yaml", rules("sessions", rule("/", to=[to("sessions")], sessionPersistence=session)))
    first = ask(gateway, "sessions.test")
    sent = {"x-session": first.headers["x-session"]}
    assert {ask(gateway, "sessions.test", headers=sent).seen["backend"] for _ in range(15)} == {first.seen["backend"]}


@pytest.mark.parametrize("more", ["several", "timeout"])
def test_a_session_that_cannot_be_kept_is_not_promised(gateway: Lasthop, three: list[Echo], more: str) -> None:
    refs = [to("sessions"), to("sessions")] if more == "several" else [to("sessions")]
    session = {"cookie": {}, **({"absoluteTimeout": "1h"} if more == "timeout" else {})}
    gateway.load("sessions.yaml", rules("sessions", rule("/", to=refs, sessionPersistence=session)))
    assert ask(gateway, "sessions.test").status == 500
    assert gateway.conditions("HTTPRoute", "sessions")["Accepted"][:2] == ("False", "UnsupportedValue")


UPGRADE = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"


@pytest.mark.parametrize("others", [0, 3 * FROM], ids=["listed", "indexed"])
@pytest.mark.parametrize("tls", [False, True])
def test_a_websocket_reaches_plaintext_and_tls_backends(gateway: Lasthop, tls: bool, others: int) -> None:
    context, name = (with_alpn(issued(), "h2", "http/1.1") if tls else None), f"ws-{tls}".lower()
    with contextlib.closing(Backend(context, name=name)) as backend:
        port = {"name": "ws", "port": 80, "appProtocol": "kubernetes.io/wss" if tls else "kubernetes.io/ws"}
        policies = [docs.config_map("ws-ca", CA.pem), docs.policy(name, "api.example", "ws-ca")] if tls else []
        gateway.load(
            "ws.yaml",
            docs.service(name, port),
            *docs.endpoints(name, backend.port, port_name="ws"),
            *policies,
            rules(name, rule("/chat", to=[to(name)], timeouts={"request": "200ms"})),
            *(rules(f"{name}-{n}", rule(f"/chat-{n}", to=[to(name)]), host=f"{name}.test") for n in range(others)),
        )
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
            client.sendall(f"GET /chat HTTP/1.1\r\nhost: {name}.test\r\n{UPGRADE}\r\n".encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += client.recv(4096)
            assert answer.startswith(b"HTTP/1.1 101 ")
            client.sendall(b"any bytes from here on")
            assert client.recv(4096) == b"any bytes from here on"
        assert backend.saw_plaintext is not tls


class H2c(Backend):
    """Speaks only HTTP/2, from the first byte on."""

    def _http1(self, stream: socket.socket, seen: Connection, status: int = 200) -> None:
        self._http2(stream, seen)


def test_an_h2c_backend_is_spoken_to_in_http_2(gateway: Lasthop) -> None:
    with contextlib.closing(H2c(name="h2c")) as backend:
        written = [*service("h2c", backend.port, app_protocol="kubernetes.io/h2c"), rules("h2c", rule("/", to=[to("h2c")]))]
        gateway.load("h2c.yaml", *written)
        assert [ask(gateway, "h2c.test").body for _ in range(3)] == ["h2c"] * 3
        assert backend.connections[0].first == b"PRI *"
        assert len(backend.connections) == 1
