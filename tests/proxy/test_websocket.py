"""WebSocket over the one cluster of a hop: HTTP/1.1 for upgrades, independent of the requests' protocol, with the same
verification."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.backends import Backend, Connection, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued, with_alpn
from tests.proxy.echo import rule, rules, service, to
from tests.proxy.lasthop import Lasthop

UPGRADE = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x\r\n"


@contextlib.contextmanager
def asked(gateway: Lasthop, name: str, headers: str = UPGRADE) -> Iterator[tuple[int, socket.socket]]:
    """The status, and the connection that it came by."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as client:
        client.sendall(f"GET /ws HTTP/1.1\r\nhost: {name}.test\r\n{headers}\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += client.recv(4096)
        yield int(answer.split(b" ", 2)[1]), client


def speaks(gateway: Lasthop, name: str) -> None:
    with asked(gateway, name) as (status, client):
        assert status == 101
        echoes(client)


def echoes(client: socket.socket) -> None:
    client.sendall(b"any bytes")
    assert client.recv(4096) == b"any bytes"


def upgrades(served: Backend) -> list[Connection]:
    return [connection for connection in served.connections if any("/ws" in head for head in connection.heads)]


def hop(name: str, port: int, options: dict[str, str] | None = None) -> list[docs.Document]:
    return [
        docs.config_map(f"{name}-ca", CA.pem),
        *docs.hop(name, port, docs.policy(name, "api.example", f"{name}-ca", options=options)),
    ]


@pytest.mark.parametrize("first", ["upgrade", "request"])
@pytest.mark.parametrize("alpn", ["h2", "http/1.1", "none", "h2-by-option"])
def test_the_first_and_later_upgrades_succeed_beside_requests(
    gateway: Lasthop, serve: Callable[..., Backend], alpn: str, first: str
) -> None:
    offers = {"h2": ("h2", "http/1.1"), "h2-by-option": ("h2", "http/1.1"), "http/1.1": ("http/1.1",), "none": ()}[alpn]
    served, name = serve(with_alpn(issued(), *offers)), f"ws-{alpn.replace('/', '-').replace('.', '-')}-{first}"
    options = {"lasthop.dev/alpn": "h2"} if alpn == "h2-by-option" else {}
    gateway.load(f"{name}.yaml", *hop(name, served.port, options=options))
    for _ in range(3) if first == "upgrade" else ():
        speaks(gateway, name)
    for _ in range(3):
        assert gateway.get(name).status == 200
        speaks(gateway, name)
    own = upgrades(served)
    assert len(own) == (6 if first == "upgrade" else 3)
    assert {connection.alpn for connection in own} == ({None} if alpn == "none" else {"http/1.1"})
    assert {connection.sni for connection in served.connections} == {"api.example"}
    others = {connection.alpn for connection in served.connections if connection not in own}
    assert others == {{"none": None, "http/1.1": "http/1.1"}.get(alpn, "h2")}


def test_upgrades_to_an_h2c_backend_use_http_1_1(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(None, name="ws-h2c")
    written = service("ws-h2c", served.port, app_protocol="kubernetes.io/h2c")
    gateway.load("ws-h2c.yaml", *written, rules("ws-h2c", rule("/", to=[to("ws-h2c")])))
    for _ in range(2):
        speaks(gateway, "ws-h2c")
        assert gateway.get("ws-h2c").status == 200
    assert [connection.first for connection in served.connections if connection not in upgrades(served)] == [b"PRI *"]
    assert len(upgrades(served)) == 2


@pytest.mark.parametrize("headers", ["upgrade: websocket\r\n", "connection: upgrade\r\nupgrade: h2c\r\n"])
def test_requests_without_an_upgrade_use_the_usual_chain(
    gateway: Lasthop, serve: Callable[..., Backend], headers: str
) -> None:
    served, name = serve(with_alpn(issued(), "h2", "http/1.1")), f"ws-not-{len(headers)}"
    gateway.load(f"{name}.yaml", *hop(name, served.port))
    with asked(gateway, name, headers) as (status, _):
        assert status in (200, 403)
    assert {connection.alpn for connection in served.connections} <= {"h2"}


def test_an_upgrade_is_verified_as_requests_are_after_each_edit(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(with_alpn(issued(), "h2", "http/1.1"))
    gateway.load("ws-edits.yaml", *hop("ws-edits", served.port))
    with asked(gateway, "ws-edits") as (status, open_one):
        assert status == 101
        _, *rest = hop("ws-edits", served.port)
        for ca, expected in ((OTHER_CA, 503), (CA, 101), (OTHER_CA, 503)):
            gateway.load("ws-edits.yaml", docs.config_map("ws-edits-ca", ca.pem), *rest)
            with asked(gateway, "ws-edits") as (status, client):
                assert status == expected
                if expected == 101:
                    echoes(client)
        echoes(open_one)
    assert {connection.sni for connection in served.connections} == {"api.example"}


def test_an_upgrade_to_an_invalid_policy_is_refused(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(with_alpn(issued(), "h2", "http/1.1"))
    gateway.load("ws-invalid.yaml", *hop("ws-invalid", served.port)[1:])
    with asked(gateway, "ws-invalid") as (status, _):
        assert status == 500
    assert not served.connections


def test_upgrades_succeed_while_no_controller_runs_and_after_the_next_has_started(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    served, gateway = serve(with_alpn(issued(), "h2", "http/1.1")), own()
    gateway.standard()
    gateway.write("first.yaml", *hop("first", served.port))
    gateway.write("second.yaml", *hop("second", served.port))
    gateway.start()
    speaks(gateway, "first")
    gateway.kill()
    speaks(gateway, "first")
    speaks(gateway, "second")  # the first upgrade of its hop
    gateway.start()
    speaks(gateway, "second")
    assert gateway.stop() == 0
    until(lambda: not gateway.envoys(), "the proxy has ended, too")
    gateway.start()
    speaks(gateway, "second")
    assert {connection.alpn for connection in served.connections} == {"http/1.1"}


def test_a_stream_under_a_waiver_ends_soon_after_the_operator_denies_waivers(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    """Within the drain time of Envoy, as connections of TLSRoutes and TCPRoutes do."""
    served, lasthop = serve(issued("other.example")), own()
    lasthop.standard(**docs.with_profile("operator"))
    policy = docs.policy("api", "api.example", docs.own("names", "VerificationWaiver"))
    lasthop.write("hop.yaml", docs.waiver("names", "All"), *docs.hop("api", served.port, policy))
    lasthop.write("profile.yaml", docs.profile("operator", waivers="Allow"))
    lasthop.start()
    lasthop.until_status("api", 200)
    with asked(lasthop, "api") as (status, client):
        assert status == 101
        lasthop.write("profile.yaml", docs.profile("operator", waivers="Deny"))
        lasthop.until_status("api", 500)
        echoes(client)
        until(lambda: ended(client), "the stream is drained")


def ended(client: socket.socket) -> bool:
    """Sends a message, and returns whether the connection is closed."""
    try:
        client.sendall(b"x")
        return client.recv(4096) == b""
    except OSError:
        return True
