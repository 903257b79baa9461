"""Controls a real headless browser by its own protocol: opens a page and evaluates expressions in it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.backends import PATIENCE, until

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)

KEY_CODES = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38, "ArrowDown": 40}


class NoPage(Exception):
    """One page is gone and the next not there yet."""


class Page:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def evaluate(self, script: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str, seconds: float = PATIENCE) -> None:
        """Waits until the page says that something is true."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await self._true(script):
            assert loop.time() < deadline, f"not within {seconds} s: {script}"
            await asyncio.sleep(0.02)

    async def _true(self, script: str) -> bool:
        try:
            return bool(await self.evaluate(f"Boolean({script})"))
        except NoPage:
            return False

    async def watch_policy(self) -> None:
        """Notes, from the next page on, what its Content-Security-Policy has kept from happening."""
        event = "event => kept.push(`${event.violatedDirective} ${event.sample}`)"
        noted = f"window.kept = []; addEventListener('securitypolicyviolation', {event});"
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=noted)

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)
        await self.until(f"location.href === {url!r} && document.readyState === 'complete'")

    async def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def resize(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str, code: int = 0) -> None:
        """Presses and releases a key, as `ArrowDown` or `/`."""
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        codes = {"windowsVirtualKeyCode": code or KEY_CODES.get(key, 0)}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, **codes)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **codes)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def screenshot(self, *, whole: bool = False) -> bytes:
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    async def reduce_colours(self, deficiency: str) -> None:
        """Shows colours as somebody sees them who is colour-blind, as `deuteranopia`."""
        await self.call("Emulation.setEmulatedVisionDeficiency", type=deficiency)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json()
            if answer.get("id") == self._number:
                if "context" in answer.get("error", {}).get("message", ""):
                    raise NoPage
                assert "result" in answer, answer
                result: dict[str, Any] = answer["result"]
                return result


@contextlib.contextmanager
def running(program: str) -> Iterator[str]:
    """Yields the address at which a browser takes commands."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = (program, *FLAGS, f"--user-data-dir={profile}", "about:blank")
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            port, _ = until(lambda: (Path(profile) / "DevToolsActivePort").read_text().splitlines(), "the browser listens")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


@contextlib.asynccontextmanager
async def opened(browser: str, url: str) -> AsyncIterator[Page]:
    """Yields a page of its own, without the cookies and the storage of others."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{browser}/json/version") as answer:
            version = await answer.json(content_type=None)
        async with session.ws_connect(version["webSocketDebuggerUrl"], max_msg_size=0) as control:
            whole = Page(control)
            context = (await whole.call("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
            target = (await whole.call("Target.createTarget", url=url, browserContextId=context))["targetId"]
            socket = f"{browser.replace('http', 'ws', 1)}/devtools/page/{target}"
            async with session.ws_connect(socket, max_msg_size=0) as own:
                yield Page(own)
            await whole.call("Target.disposeBrowserContext", browserContextId=context)
