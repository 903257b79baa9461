"""The HTML of the page: its scripts, styles and resources come only from the admin address itself."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from lasthop.web.page import address, filter_of
from lasthop.web.picture import Filter, LineState
from tests.web import shop


async def test_no_answer_has_inline_scripts_or_styles_and_every_one_forbids_them(tmp_path: Path) -> None:
    async with (
        shop.opened(shop.shop(), tmp_path / "s") as (_, port),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as page,
    ):
        whole = await (await page.get("/")).text()
        hop = re.findall(r'id="h-(\w+)"', whole)[0]
        for path in ("/", f"/?hop={hop}", "/live", f"/detail?hop={hop}", f"/detail/state?hop={hop}"):
            answer = await page.get(path)
            text = await answer.text()
            policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
            assert policy["default-src"] == "'none'" and "unsafe" not in str(policy), path
            assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|hx-on|hx-vals=.js|<script(?![^>]*src=)", text), path
            assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "everything comes from here"


async def test_a_page_without_a_script_shows_what_its_address_asks_for(tmp_path: Path) -> None:
    async with (
        shop.opened(shop.shop(), tmp_path / "s") as (_, port),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as page,
    ):
        whole = await (await page.get("/")).text()
        (link,) = re.findall(r'<a id="h-\w+"[^>]*?href="(\?hop=\w+)"[^>]*>(?:(?!</a>).)*?shop/erp', whole, re.DOTALL)[-1:]
        opened = await (await page.get(f"/{link}")).text()
        assert 'class="panel"' in opened and "VerificationWaiver shop/legacy-erp" in opened
        text = await (await page.get("/?q=erp&state=waived")).text()
        assert re.findall(r'<b class="cut" title="([^"]+)"><bdi>', text) == ["shop/erp:443"]


@pytest.mark.parametrize(
    "query, asked",
    [
        ({}, Filter()),
        ({"q": "  a b ", "namespace": "n", "gateway": "e/g", "state": "not-tried-yet", "page": "3"}, None),
        ({"state": "nonsense", "page": "-1"}, Filter()),
        ({"page": "٣"}, Filter()),
        ({"page": "9" * 400}, Filter()),
        ({"q": "x" * 9999}, Filter("x" * 200)),
    ],
)
def test_invalid_parts_of_an_address_are_left_out(query: dict[str, str], asked: Filter | None) -> None:
    assert filter_of(query) == (asked or Filter("a b", "n", "e/g", LineState.UNTRIED, 3))


def test_an_address_asks_for_what_it_was_made_from() -> None:
    chosen = Filter('a&b="<', "n/m", "e/g", LineState.PARTLY, 2)
    assert address(chosen) == "?q=a%26b%3D%22%3C&namespace=n%2Fm&gateway=e%2Fg&state=partly-failing&page=2"
    assert address(chosen, state=None, page=None, q="") == "?namespace=n%2Fm&gateway=e%2Fg"


async def test_findings_below_a_tall_picture_are_counted_above_it(tmp_path: Path) -> None:
    async with (
        shop.opened(shop.shop(), tmp_path / "s") as (_, port),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as page,
    ):
        whole = await (await page.get("/")).text()
    above, _, below = whole.partition('<section class="gateway"')
    (count,) = re.findall(r'href="#findings">(\d+) findings? below</a>', above)
    listed = below.partition('id="findings"')[2].partition("</ul>")[0]
    assert int(count) == len(re.findall(r'<span class="severity">', listed)) > 0
