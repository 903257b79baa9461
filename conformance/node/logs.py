"""Writes container logs with a time before each line, and serves them to the API server like a kubelet."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiohttp import web

PORT = 10250


def log_path(folder: Path, namespace: str, pod: str, container: str) -> Path:
    return folder / f"{namespace}_{pod}_{container}.log"


async def record(stream: asyncio.StreamReader, path: Path) -> None:
    """Copies a container's output to its log, each line with its time."""
    with path.open("ab", buffering=0) as log:
        while True:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
            except asyncio.LimitOverrunError as overrun:
                line = await stream.readexactly(overrun.consumed)
            if not line:
                return
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ").encode()
            log.write(stamp + line.rstrip(b"\n") + b"\n")


def select(lines: list[str], since: datetime | None, tail: int | None, timestamps: bool) -> str:
    """`sinceTime`, `tailLines`, `timestamps` of the pod log API."""
    chosen: deque[str] = deque(maxlen=tail)
    for line in lines:
        stamp, _, text = line.partition(" ")
        if since is None or datetime.fromisoformat(stamp) >= since:
            chosen.append(line if timestamps else text)
    return "".join(line + "\n" for line in chosen)


async def serve(folder: Path, address: str, certificate: Path, key: Path) -> web.AppRunner:
    async def container_logs(request: web.Request) -> web.Response:
        path = log_path(folder, *(request.match_info[part] for part in ("namespace", "pod", "container")))
        if not path.exists():
            return web.Response(status=404, text=f"no log {path.name}\n")
        query = request.query
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        tail = int(query["tailLines"]) if "tailLines" in query else None
        lines = path.read_text(errors="replace").splitlines()
        return web.Response(text=select(lines, since, tail, query.get("timestamps") == "true"))

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", container_logs)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, address, PORT, ssl_context=tls).start()
    return runner
