"""Takes the pictures of docs/dashboard.md: `python -m tests.web.screenshots docs/images`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.web import browser, shop
from tests.web.browser import Page
from tools import programs

LOADED = "window.htmx !== undefined && document.querySelector('a.row time') !== null"
READ = "[...document.querySelectorAll('time[data-unix]')].every(each => each.textContent.includes('ago'))"


async def main(folder: Path) -> None:
    wire = shop.Wire()
    shop.traffic(wire)
    with tempfile.TemporaryDirectory() as name, browser.running(programs.path("chromium")) as chromium:
        async with shop.opened(shop.shop(), Path(name) / "s") as (view, port):
            wire.tell(view.controller)
            shop.failing(view)
            async with browser.opened(chromium, f"http://127.0.0.1:{port}/") as page:
                await page.until(LOADED)
                await take(page, folder / "dashboard.png", 1280, 860)
                await take(page, folder / "dashboard-dark.png", 1280, 860, dark=True)
                await take(page, folder / "dashboard-tablet.png", 820, 900)
                await take(page, folder / "dashboard-phone.png", 390, 780, mobile=True)
                rows = "[...document.querySelectorAll('a.row')]"
                await page.evaluate(f"{rows}.find(row => row.innerText.includes('payments')).click()")
                await page.until("document.querySelector('.panel') !== null")
                await take(page, folder / "dashboard-detail.png", 1280, 860)


async def take(page: Page, file: Path, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
    await page.resize(width, height, dark=dark, mobile=mobile)
    await page.evaluate("document.documentElement.style.scrollbarWidth = 'none'")
    await page.until(READ)
    file.write_bytes(await page.screenshot())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
