"""Envoy's admin API, and a gateway's: whole answers are read, others are never taken for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lasthop.edge import unix_http
from lasthop.edge.proxy.admin import Admin, AdminUnavailable, request

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;x=y\r\nLI\r\n\r\n2\r\nVE\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nLI\r\nVE"
CUT = {
    "nothing": b"",
    "half a head": CHUNKED[:20],
    "no body": CHUNKED[:50],
    "half a chunk": CHUNKED[:-20],
    "no last chunk": CHUNKED[:-7],
    "half a body": SIZED[:-1],
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "no status": b"HTTP/1.1 ok\r\n\r\n",
    "no size": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nLIVE",
}


@contextlib.asynccontextmanager
async def answering(folder: Path, answer: bytes) -> AsyncIterator[Path]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_unix_server(respond, folder / "admin.sock"):
        yield folder / "admin.sock"


@pytest.mark.parametrize("answer", [CHUNKED, SIZED], ids=["chunked", "sized"])
async def test_a_whole_answer_is_read(tmp_path: Path, answer: bytes) -> None:
    async with answering(tmp_path, answer) as socket:
        assert await request(socket, "GET", "/ready") == (200, b"LI\r\nVE")


@pytest.mark.parametrize("answer", CUT.values(), ids=CUT)
async def test_an_answer_that_is_not_whole_is_none(tmp_path: Path, answer: bytes) -> None:
    async with answering(tmp_path, answer) as socket:
        with pytest.raises(AdminUnavailable):
            await Admin(socket).config_dump()
        assert await Admin(socket).state() == ""


async def test_the_state_of_an_envoy_that_is_not_ready_is_read(tmp_path: Path) -> None:
    async with answering(tmp_path, b"HTTP/1.1 503 no\r\ncontent-length: 9\r\n\r\nDRAINING\n") as socket:
        assert await Admin(socket).state() == "DRAINING"
        with pytest.raises(AdminUnavailable, match="503"):
            await Admin(socket).prometheus()


class _Gateway(socketserver.ThreadingUnixStreamServer):
    answer, asked = b"", b""


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Gateway)
        while line := self.rfile.readline():
            self.server.asked += line
            if line == b"\r\n":
                break
        self.wfile.write(self.server.answer)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[_Gateway]:
    with _Gateway(str(tmp_path / "gateway.sock"), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_command_requests_a_response_without_chunks(gateway: _Gateway, tmp_path: Path) -> None:
    gateway.answer = SIZED
    assert unix_http.get(tmp_path / "gateway.sock", "/api/about", 5) == (200, b"LI\r\nVE")
    assert gateway.asked.startswith(b"GET /api/about HTTP/1.0\r\n")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", SIZED[:-1], SIZED[:20], b"HTTP/1.0 ok\r\n\r\n"])
def test_a_command_takes_no_half_answer(gateway: _Gateway, tmp_path: Path, answer: bytes) -> None:
    gateway.answer = answer
    with pytest.raises(unix_http.BadResponse):
        unix_http.get(tmp_path / "gateway.sock", "/api/about", 5)
