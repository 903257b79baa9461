"""Provides the certificates and local backends for the examples beside this file."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from aiohttp import web

from examples.quickstart.certificates import Issued, lasts

HERE: Final = Path(__file__).parent
LONGEST: Final = 1000


class Server(NamedTuple):
    """A backend: an HTTPS server, or one that answers a line (`lines`) or a datagram (`datagrams`) with another."""

    port: int
    certificate: str = ""
    """Its file in certs/; empty: no TLS."""
    asks: bool = False
    """For a client's certificate, and refuses those without."""
    lines: bool = False
    datagrams: bool = False


class Story(NamedTuple):
    tries: tuple[str, ...]
    """Commands that show it."""
    ports: tuple[int, ...]
    """Those of the Gateway."""
    servers: tuple[Server, ...] = ()
    names: Mapping[str, str] = {}
    """File in certs/ -> the name that its certificate is for; the demo's CA has signed it."""
    clients: Mapping[str, str] = {}
    """The same, of certificates that a gateway shows."""
    alone: Mapping[str, str] = {}
    """The same, of certificates that no CA has signed."""
    pinned: str = ""
    """A file in certs/ for which pins.yaml has a PinSet."""


CURL: Final = "curl -i http://127.0.0.1:8080/"
STORIES: Final = {
    "failing-policy": Story((CURL,), (8080,), (Server(18451, "api"),), {"api": "api.internal.example"}),
    "backend-mtls": Story(
        (CURL, CURL + "erp"),
        (8080,),
        (Server(18452, "orders", asks=True), Server(18453, "erp", asks=True)),
        {"orders": "orders.example", "erp": "erp.example"},
        {"gateway": "the-gateway", "erp-client": "the-erp-team"},
    ),
    "guardrails": Story(
        (CURL, CURL + "wiki", CURL + "erp"),
        (8080,),
        (Server(18454, "shop"), Server(18455, "wiki"), Server(18456, "erp")),
        {"shop": "shop.example", "wiki": "wiki.example"},
        alone={"erp": "erp.example"},
    ),
    "pinning-and-waivers": Story(
        (CURL + "erp", CURL + "printer"),
        (8080,),
        (Server(18457, "erp"), Server(18458, "printer")),
        alone={"erp": "erp.example", "printer": "whatever"},
        pinned="erp",
    ),
    "tls-terminate": Story(
        (
            "openssl s_client -quiet -connect 127.0.0.1:6432 -servername orders.db.example "
            "-CAfile examples/tls-terminate/certs/ca.crt",
        ),
        (6432,),
        (Server(18459, "orders", lines=True),),
        {"orders": "orders.internal", "db": "orders.db.example"},
    ),
    "tcp-udp": Story(
        ("echo hello | nc -N 127.0.0.1 5353", "echo hello | nc -u -w 1 127.0.0.1 5353"),
        (5353,),
        (Server(18460, lines=True), Server(18461, datagrams=True)),
    ),
    "telemetry": Story(
        (CURL,),
        (8080,),
        (Server(18462, "api"),),
        {"api": "api.example", "collector": "collector.example"},
    ),
}


def prepare(folder: Path, story: Story) -> None:
    """Makes the certificates of a story, and its pins, unless they are there and last."""
    certs = folder / "certs"
    files = ["ca", *story.names, *story.clients, *story.alone]
    if all(lasts(certs / f"{name}.crt") for name in files):
        return
    certs.mkdir(mode=0o700, exist_ok=True)
    ca = Issued("Lasthop demo CA")
    (certs / "ca.crt").write_bytes(ca.pem)
    for file, name in story.names.items():
        Issued(name, ca).write(certs, file)
    for file, name in story.clients.items():
        Issued(name, ca, client=True).write(certs, file)
    for file, name in story.alone.items():
        Issued(name, Issued(name)).write(certs, file)
    if story.pinned:
        command = (sys.executable, "-m", "lasthop.cli.main", "pin", str(certs / f"{story.pinned}.crt"), "--name", story.pinned)
        (folder / "pins.yaml").write_bytes(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


@contextlib.asynccontextmanager
async def serving(folder: Path, story: Story, ports: Mapping[int, int] | None = None) -> AsyncIterator[None]:
    """Runs the backends of a story; `ports` replaces ports of the YAML."""
    async with contextlib.AsyncExitStack() as stack:
        for server in story.servers:
            port = (ports or {}).get(server.port, server.port)
            context = _context(folder / "certs", server)
            if server.datagrams:
                loop = asyncio.get_running_loop()
                transport, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", port))
                stack.callback(transport.close)
            elif server.lines:
                await stack.enter_async_context(_line_server(port, context))
            else:
                runner = web.AppRunner(_app(server.certificate), access_log=None, shutdown_timeout=1)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield


def _context(certs: Path, server: Server) -> ssl.SSLContext | None:
    if not server.certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs / f"{server.certificate}.crt", certs / f"{server.certificate}.key")
    if server.asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certs / "ca.crt")
    if not server.lines:
        context.set_alpn_protocols(["http/1.1"])
    return context


def _app(name: str) -> web.Application:
    async def hello(request: web.Request) -> web.Response:
        shown = request.get_extra_info("ssl_object").getpeercert() or {}
        client = {key: value for part in shown.get("subject", ()) for key, value in part}.get("commonName")
        return web.Response(text=f"Hello from {name}" + (f", {client}\n" if client else "\n"))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", hello)
    return app


@contextlib.asynccontextmanager
async def _line_server(port: int, context: ssl.SSLContext | None) -> AsyncIterator[None]:
    """Answers each line with another; its end closes all connections, including silent ones."""
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connections[task] = writer
        try:
            if line := await reader.readline():
                writer.write(b"you said: " + line)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, ValueError):
            writer.transport.abort()
        finally:
            del connections[task]

    async with await asyncio.start_server(answer, "127.0.0.1", port, ssl=context):
        yield
        for writer in connections.values():
            writer.transport.abort()
        if connections:
            await asyncio.wait(tuple(connections), timeout=5)
        await asyncio.sleep(0)  # closed sockets disappear one iteration later


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)  # of Python 3.11's own only by its methods

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        self._transport.sendto(b"you said: " + data[:LONGEST], addr)
