"""Forwards a loopback port of the host to the API server, which is in the cluster's own network."""

from __future__ import annotations

import asyncio
import contextlib
import socket


async def serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection(host, port)
            await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

    server = await asyncio.start_server(connected, sock=listener)
    async with server:
        await server.serve_forever()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()
