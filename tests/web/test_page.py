"""The admin page of `lasthop run` in a real browser: it follows edits by itself, and shows when Lasthop has stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backends import backend
from tests.proxy.certs import CA, issued
from tests.proxy.documents import config_map, hop, policy
from tests.proxy.lasthop import Lasthop
from tests.web import browser
from tests.world import ca_pem

pytestmark = pytest.mark.program("chromium")
TEXT = "(document.body?.innerText ?? '')"
GONE = "document.getElementById('gone')?.hidden === false"


@pytest.fixture(scope="module")
def started() -> Iterator[Lasthop]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name, contextlib.closing(Lasthop(Path(name))) as found:
        found.standard()
        found.start()
        yield found


@pytest.fixture
def lasthop(started: Lasthop) -> Iterator[Lasthop]:
    """Without the files of other tests."""
    yield started
    for path in started.folder.glob("*.yaml"):
        if path.name != "gateway.yaml":
            path.unlink()
    started.settle()


async def test_the_page_shows_hops_and_findings_with_their_places_and_follows_an_edit_by_itself(
    chromium: str, lasthop: Lasthop
) -> None:
    lasthop.write("api.yaml", *hop("api", 9, policy("api", "api.example", "missing")))
    lasthop.settle()
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until("document.querySelector('a.row.failing') !== null")
        assert await page.evaluate(f"{TEXT}.includes('ConfigMap shop/missing does not exist')")
        places = await page.evaluate("[...document.querySelectorAll('.findings .place')].map(each => each.textContent)")
        assert any(place.startswith("api.yaml:") or "/api.yaml:" in place for place in places), places
        lasthop.write("ca.yaml", config_map("missing", ca_pem("good")))
        await page.until("document.querySelector('a.row.not-tried-yet') !== null")
        await page.until(f"{TEXT}.includes(', for api.example')")
        await page.until(f"!{TEXT}.includes('does not exist')")


async def test_texts_of_objects_are_shown_as_text_and_never_run(chromium: str, lasthop: Lasthop) -> None:
    hostile = "<img src=x onerror=document.title='owned'>"
    options = {"lasthop.dev/alpn": hostile}
    lasthop.write("api.yaml", *hop("api", 9, policy("api", "api.example", "missing", options=options)))
    lasthop.settle()
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until(f"{TEXT}.includes('onerror')")
        assert await page.evaluate("document.title") == "Lasthop"
        assert await page.evaluate("document.querySelectorAll('img').length") == 0


async def test_an_unchanged_page_is_answered_with_nothing(chromium: str, lasthop: Lasthop) -> None:
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until("document.getElementById('live') !== null")
        # Until what other tests have removed is gone from the page.
        await page.evaluate(
            """(async () => {
              const status = async () => (await fetch(document.getElementById('live').getAttribute('hx-get'))).status;
              while (await status() !== 204) await new Promise(done => setTimeout(done, 20));
            })()"""
        )


async def test_the_page_says_within_two_seconds_that_lasthop_is_silent_or_gone_and_when_it_is_back(
    chromium: str, lasthop: Lasthop
) -> None:
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until("window.htmx !== undefined && document.getElementById('live') !== null")
        assert await page.evaluate("SILENT + CHECK") < 2000, "milliseconds; what a busy machine adds is not the page's"
        await page.until(f"Date.now() - performance.timeOrigin > SILENT + CHECK && !({GONE})")
        assert lasthop.process
        pid = lasthop.process.pid
        os.kill(pid, signal.SIGSTOP)
        await page.until(GONE)
        assert await page.evaluate("document.getElementById('gone').innerText.includes('does not respond')")
        assert await page.evaluate("getComputedStyle(document.querySelector('main')).opacity") < "1", "nothing looks live"
        os.kill(pid, signal.SIGCONT)
        await page.until(f"!({GONE})")
        lasthop.kill()
        await page.until(GONE)
        lasthop.start()
        await page.until(f"!({GONE})")


ROW = "[...document.querySelectorAll('a.row')].find(row => row.innerText.includes('shop/{}:'))"


async def test_after_real_traffic_each_line_is_what_happened_and_the_page_can_probe_why(
    chromium: str, lasthop: Lasthop
) -> None:
    with backend(issued("good.example")) as good, backend(issued("old.example")) as wrong, backend() as plain:
        lasthop.write(
            "shop.yaml",
            config_map("ca", CA.pem),
            *hop("good", good.port, policy("good", "good.example", "ca")),
            *hop("wrong", wrong.port, policy("wrong", "new.example", "ca")),
            *hop("plain", plain.port),
            *hop("quiet", good.port, policy("quiet", "good.example", "ca")),
        )
        lasthop.settle()
        async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
            await page.until(f"{ROW.format('good')}?.classList.contains('not-tried-yet')")
            for name, status in {"good": 200, "wrong": 503, "plain": 200}.items():
                for _ in range(3):
                    assert (await asyncio.to_thread(lasthop.get, name)).status == status
            states = {"good": "verified", "wrong": "failing", "plain": "plaintext", "quiet": "not-tried-yet"}
            for name, state in states.items():
                await page.until(f"{ROW.format(name)}?.classList.contains('{state}')")
            words = "certificate is for old.example, policy shop/wrong wants new.example"
            assert words in await page.evaluate(f"{ROW.format('wrong')}.querySelector('.words').textContent")
            shown = await page.evaluate(f"{ROW.format('good')}.querySelector('.certificate').innerText")
            assert "good.example" in shown and "day" in shown
            assert words in await page.evaluate("document.querySelector('.failures').innerText")
            await page.until("document.querySelector('.findings').innerText.includes('old.example')")
            await page.evaluate(f"{ROW.format('wrong')}.click()")
            await page.until("document.querySelector('.panel form button') !== null")
            await page.evaluate("document.querySelector('.panel form button').click()")
            await page.until("document.querySelector('#probed .checks li.fail') !== null")
            checks = await page.evaluate("document.getElementById('probed').innerText")
            assert "old.example" in checks and "new.example" in checks
