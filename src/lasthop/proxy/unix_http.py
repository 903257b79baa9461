"""Sends one HTTP request over a unix socket. A library for this takes longer to import than Envoy to start."""

from __future__ import annotations

import asyncio
from pathlib import Path


class BadResponse(Exception):
    """The response is not HTTP, or ended too early."""


async def request(socket: Path, method: str, target: str) -> tuple[int, bytes]:
    """Returns status and body. Raises OSError or `BadResponse`; has no timeout of its own."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(f"{method} {target} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
        return await _answer(reader)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        raise BadResponse(f"no HTTP response to {target}: {error}") from error
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    status = int(first.split()[1])
    # There are three ways to mark the end of a body.
    if "chunked" in headers.get("transfer-encoding", ""):
        return status, await _chunks(reader)
    if length := headers.get("content-length"):
        return status, await reader.readexactly(int(length))
    return status, await reader.read()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    return bytes(body)
