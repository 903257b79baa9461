"""Forwards local connections to a Pod's port like `kubectl port-forward`, through the API server and with the user's
permissions.

Each connection is a WebSocket of its own (subprotocol v4.channel.k8s.io). The first byte of a message is the channel, 0 for
data and 1 for errors. The first message on each channel only repeats the port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp

from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError

PROTOCOL: Final = "v4.channel.k8s.io"
DATA: Final = b"\0"
CHUNK: Final = 65536

Target = Callable[[], Awaitable[tuple[str, str, int]]]
"""Returns namespace and name of the Pod, and the port, for the next connection."""


@contextlib.asynccontextmanager
async def forwarding(
    client: Client, target: Target, on_error: Callable[[ApiError], None], port: int = 0
) -> AsyncIterator[int]:
    """Listens on loopback and yields the port. `on_error` receives the error of a failed connection."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            namespace, name, remote = await target()
            await _forward(client, namespace, name, remote, reader, writer)
        except ApiError as error:
            on_error(error)
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _forward(
    client: Client, namespace: str, name: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    path = path_of("", "v1", "pods", namespace, name, "portforward")
    async with client.websocket(path, {"ports": str(port)}, PROTOCOL) as socket, asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(_send(reader, socket))
        problem = await _receive(socket, writer)
        sending.cancel()
    if problem:
        raise ApiError(0, "PortForward", problem)


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        while chunk := await reader.read(CHUNK):
            await socket.send_bytes(DATA + chunk)
        await socket.close()


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    """Forwards the Pod's data; returns the Pod's error, if any."""
    opened = set()
    with contextlib.suppress(ConnectionError, aiohttp.ClientError):
        async for message in socket:
            content: bytes = message.data if message.type is aiohttp.WSMsgType.BINARY else b""
            channel, content = content[:1], content[1:]
            if channel not in opened:
                opened.add(channel)
            elif channel == DATA:
                writer.write(content)
                await writer.drain()
            elif content:
                return content[:300].decode(errors="replace").strip()
    return ""
