"""Serves the kubelet's readiness probe and Envoy's own metrics over HTTP.

Envoy reports LIVE even without configuration once it has waited 15 s for it, so the probe also checks its listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

from lasthop.edge.proxy.admin import Admin, AdminUnavailable

PATH: Final = "/ready"
METRICS: Final = "/metrics"
METRICS_AGE: Final = 5.0
"""Seconds for which metrics are cached, because any Pod in the cluster can request them, and with thousands of backends they
have megabytes."""
_LONGEST_REQUEST: Final = 5.0
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class ReadinessServer:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._had_listeners = False
        self._metrics, self._metrics_at = b"", -METRICS_AGE
        self._fetching = asyncio.Lock()
        self.stopping = False

    async def problem(self) -> str:
        """Returns the reason why the proxy is not ready, or an empty text."""
        if self.stopping:
            return "stopping"
        state = await self._admin.state()
        if state != "LIVE":
            return f"Envoy is {state or 'not running yet'}"
        if not self._had_listeners:
            # Checked once, because a Gateway that loses its last listener for a moment should not lose its endpoints longer.
            try:
                self._had_listeners = bool(await self._admin.listeners())
            except AdminUnavailable as error:
                return str(error)
        return "" if self._had_listeners else "Envoy has no configuration yet"

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[None]:
        """Serves on all addresses of the Pod. Raises OSError if the port is in use."""
        server = await asyncio.start_server(self._answer, None, port)
        async with server:
            yield

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_LONGEST_REQUEST):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode("latin-1")
                path = line.split(" ")[1] if line.count(" ") == 2 else ""
                status, body = await self._respond(path)
                head = (
                    f"HTTP/1.1 {status}\r\ncontent-type: {_TEXT}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        writer.close()

    async def _respond(self, path: str) -> tuple[str, bytes]:
        if path == PATH:
            problem = await self.problem()
            return "503 Service Unavailable" if problem else "200 OK", f"{problem or 'ready'}\n".encode()
        if path == METRICS:
            try:
                return "200 OK", await self._current_metrics()
            except AdminUnavailable as error:
                return "503 Service Unavailable", f"{error}\n".encode()
        return "404 Not Found", b"request /ready or /metrics\n"

    async def _current_metrics(self) -> bytes:
        async with self._fetching:
            if time.monotonic() - self._metrics_at >= METRICS_AGE:
                self._metrics = await self._admin.prometheus()
                self._metrics_at = time.monotonic()
            return self._metrics
