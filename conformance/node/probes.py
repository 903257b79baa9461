"""Runs httpGet and tcpSocket probes from the node to the pod, and counts results up to the thresholds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass
class Verdict:
    """Success after `successThreshold` good answers in a row, failure after `failureThreshold` bad ones."""

    healthy: bool
    success_threshold: int = 1
    failure_threshold: int = 3
    run: int = 0  # answers in a row that contradict the verdict

    def answer(self, good: bool) -> bool:
        self.run = 0 if good == self.healthy else self.run + 1
        if self.run >= (self.success_threshold if good else self.failure_threshold):
            self.healthy, self.run = good, 0
        return self.healthy


async def verdicts(probe: dict[str, Any], container: dict[str, Any], ip: str, healthy: bool) -> AsyncIterator[bool]:
    """The verdict after each probe, for ever."""
    verdict = Verdict(healthy, probe.get("successThreshold", 1), probe.get("failureThreshold", 3))
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, force_close=True)) as session:
        while True:
            yield verdict.answer(await _ask(session, probe, container, ip))
            await asyncio.sleep(probe.get("periodSeconds", 10))


async def _ask(session: aiohttp.ClientSession, probe: dict[str, Any], container: dict[str, Any], ip: str) -> bool:
    seconds = probe.get("timeoutSeconds", 1)
    with contextlib.suppress(OSError, aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(seconds):
            if "tcpSocket" in probe:
                _, writer = await asyncio.open_connection(ip, port_of(probe["tcpSocket"]["port"], container))
                writer.close()
                return True
            async with session.get(url_of(probe["httpGet"], container, ip), headers=_headers(probe["httpGet"])) as response:
                return 200 <= response.status < 400
    return False


def url_of(get: dict[str, Any], container: dict[str, Any], ip: str) -> str:
    path = get.get("path", "/")
    scheme, host = get.get("scheme", "HTTP").lower(), get.get("host") or ip
    return f"{scheme}://{host}:{port_of(get['port'], container)}/{path.removeprefix('/')}"


def port_of(port: int | str, container: dict[str, Any]) -> int:
    """A number, or the name of one of the container's ports."""
    if isinstance(port, int):
        return port
    named = {entry.get("name"): entry["containerPort"] for entry in container.get("ports") or ()}
    return int(named.get(port, port))


def _headers(get: dict[str, Any]) -> dict[str, str]:
    return {"User-Agent": "kube-probe/1.36"} | {header["name"]: header["value"] for header in get.get("httpHeaders") or ()}
