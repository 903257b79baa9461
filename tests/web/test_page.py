"""The admin page in a real browser: what it shows, that it follows edits by itself, and that nothing in it runs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.documents import config_map, hop, policy
from tests.proxy.lasthop import Lasthop
from tests.web import browser
from tests.world import ca_pem

TEXT = "(document.body?.innerText ?? '')"


@pytest.fixture
def chromium() -> str:
    found = browser.find()
    if found is None:
        pytest.skip("there is no Chromium on this machine; apt-get install chromium")
    return found


@pytest.fixture
def lasthop() -> Iterator[Lasthop]:
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name, contextlib.closing(Lasthop(Path(name))) as found:
        found.standard()
        yield found


async def test_the_page_shows_hops_and_findings_and_follows_an_edit_by_itself(chromium: str, lasthop: Lasthop) -> None:
    lasthop.write("api.yaml", *hop("api", 9, policy("api", "api.example", "missing")))
    lasthop.start()
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until(f"{TEXT}.includes('failing closed')")
        assert await page.evaluate(f"{TEXT}.includes('ConfigMap shop/missing does not exist')")
        lasthop.write("ca.yaml", config_map("missing", ca_pem("good")))
        await page.until(f"{TEXT}.includes('its own CA, for api.example')")
        await page.until(f"!{TEXT}.includes('does not exist')")


async def test_what_objects_say_is_shown_as_text_and_never_runs(chromium: str, lasthop: Lasthop) -> None:
    hostile = "<img src=x onerror=document.title='owned'>"
    options = {"lasthop.dev/alpn": hostile}
    lasthop.write("api.yaml", *hop("api", 9, policy("api", "api.example", "missing", options=options)))
    lasthop.start()
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until(f"{TEXT}.includes('onerror')")
        assert await page.evaluate("document.title") == "Lasthop"
        assert await page.evaluate("document.querySelectorAll('img').length") == 0


async def test_an_unchanged_page_is_answered_with_nothing(chromium: str, lasthop: Lasthop) -> None:
    lasthop.start()
    async with browser.opened(chromium, f"http://127.0.0.1:{lasthop.admin}/") as page:
        await page.until("document.getElementById('live') !== null")
        path = await page.evaluate("document.getElementById('live').getAttribute('hx-get')")
        assert await page.evaluate(f"fetch('{path}').then(answer => answer.status)") == 204
