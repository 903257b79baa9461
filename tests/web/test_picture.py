"""The picture in a real browser: at three widths, dark and light, by keyboard, with hostile names and with 5,000 hops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lasthop.base.api.meta import Object
from lasthop.engine.plan.observation import LeafCertificate
from lasthop.engine.plan.upstream import Hop, Protocol
from tests import world
from tests.web import browser, shop
from tests.web.browser import Page

pytestmark = pytest.mark.program("chromium")
WIDTHS = {"phone": (390, 844), "tablet": (820, 1180), "desktop": (1360, 900)}
ENDS, POOR_CONTRAST = ((Path(__file__).parent / name).read_text() for name in ("ends.js", "contrast.js"))
LOADED = "window.htmx !== undefined && document.getElementById('live') !== null"


@contextlib.asynccontextmanager
async def page_of(
    chromium: str, objects: Sequence[Object], tmp_path: Path, wire: shop.Wire | None = None
) -> AsyncIterator[tuple[Page, str]]:
    async with shop.opened(objects, tmp_path / "s") as (view, port):
        if wire:
            wire.tell(view.controller)
            shop.failing(view)
        url = f"http://127.0.0.1:{port}/"
        async with browser.opened(chromium, "about:blank") as page:
            await page.watch_policy()
            await page.open(url)
            await page.until(LOADED)
            yield page, url
            assert await page.evaluate("window.kept") == [], "its Content-Security-Policy had to keep something from happening"


def a_shop() -> shop.Wire:
    wire = shop.Wire()
    shop.traffic(wire)
    return wire


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
async def test_at_every_width_everything_fits_and_can_be_read(width: str, dark: bool, chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, _):
        await page.resize(*WIDTHS[width], dark=dark, mobile=width == "phone")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        states = await page.evaluate("[...document.querySelectorAll('a.row')].map(row => row.classList[1])")
        assert states == [
            *("failing", "failing", "partly-failing", "plaintext", "waived", "not-tried-yet"),
            *("verified", "verified", "verified", "verified"),
        ]
        assert await page.evaluate(POOR_CONTRAST) == []
        if width != "phone":
            lines, far = await page.evaluate(ENDS)
            assert lines == 11 and far == [], "every line goes from a route to its backend"
        else:
            ways = await page.evaluate("document.querySelector('a.row .way').innerText")
            assert ":443" in ways and "HTTPRoute billing/invoices" in ways, "where no line is drawn, words say it"


async def test_states_differ_in_word_icon_and_dashes_and_not_in_colour_alone(chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, _):
        await page.resize(*WIDTHS["desktop"])
        found = await page.evaluate(
            """[...document.querySelectorAll('a.row')].map(row => [row.classList[1], row.querySelector('.state').textContent,
            row.querySelector('.mark use').getAttribute('href'), getComputedStyle(document.querySelector(
            `.route-links path[data-hops="${row.dataset.hops}"]`)).strokeDasharray])"""
        )
        by_state = {state: tuple(rest) for state, *rest in found}
        assert len({word for word, _, _ in by_state.values()}) == len(by_state) == 6
        assert len({icon for _, icon, _ in by_state.values()}) == 6
        dashes = {state: dash for state, (_, _, dash) in by_state.items()}
        assert dashes.pop("failing") == "none" and dashes.pop("verified") == "none", (
            "one red, one green, and told apart by icons"
        )
        assert len({*dashes.values(), "none"}) == len(dashes) + 1


async def test_lines_are_as_thick_as_the_traffic_on_them(chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, _):
        widths = dict(
            await page.evaluate(
                """[...document.querySelectorAll('a.row')].map(row => [row.querySelector('b').textContent, Number(
                document.querySelector(`.route-links path[data-hops="${row.dataset.hops}"]`).getAttribute('stroke-width'))])"""
            )
        )
        assert widths["shop/images:443"] > widths["shop/api:443"] > widths["shop/search:443"] > widths["billing/ledger:443"]


async def test_everything_can_be_done_with_the_keyboard(chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, url):
        await page.press("/")
        assert await page.evaluate("document.activeElement.name") == "q"
        await page.type("billing")
        await page.until("document.querySelectorAll('a.row').length === 4")
        await page.until("location.search === '?q=billing'")
        await page.press("ArrowDown")
        first = await page.evaluate("document.activeElement.id")
        assert first.startswith("h-")
        await page.press("ArrowDown")
        second = await page.evaluate("document.activeElement.id")
        assert second.startswith("h-") and second != first
        await page.press("Enter")
        await page.until("document.activeElement.id === 'detail-title'")
        assert await page.evaluate("location.search.includes('hop=')")
        await page.press("Escape")
        await page.until("document.querySelector('.panel') === null")
        assert await page.evaluate("document.activeElement.id") == second, "back where it was"
        await page.evaluate("history.back()")
        await page.until("document.querySelector('.panel') !== null")  # the back button opens what was open
        assert (await page.evaluate("location.href")).startswith(url)


async def test_a_page_that_changes_keeps_the_focus_and_what_was_typed(chromium: str, tmp_path: Path) -> None:
    async with (
        shop.opened(shop.shop(), tmp_path / "s") as (view, port),
        browser.opened(chromium, f"http://127.0.0.1:{port}/") as page,
    ):
        await page.until(LOADED)
        await page.evaluate("document.querySelector('a.row').focus(); window.before = document.getElementById('live')")
        focused = await page.evaluate("document.activeElement.id")
        shop.failing(view)
        await page.until("document.getElementById('live') !== window.before")
        assert await page.evaluate("document.activeElement.id") == focused
        await page.press("/")
        await page.type("che")
        await page.until("document.querySelectorAll('a.row').length === 2")
        shop.failing(view)
        await page.type("ckout")
        await page.until("location.search === '?q=checkout'")
        assert await page.evaluate("document.activeElement.value") == "checkout"


async def test_a_click_on_a_line_opens_what_is_known_of_it(chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, _):
        await page.resize(*WIDTHS["desktop"])
        x, y = await page.evaluate(
            """(() => {
              const path = document.querySelector('.route-links path.hit');
              const middle = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());
              window.wanted = path.dataset.open;
              return [middle.x, middle.y];
            })()"""
        )
        await page.click(x, y)
        await page.until("document.querySelector('.panel')?.dataset.hop === window.wanted")


async def test_one_backend_is_explained_with_its_endpoints_tree_and_yaml(chromium: str, tmp_path: Path) -> None:
    async with page_of(chromium, shop.shop(), tmp_path, a_shop()) as (page, _):
        await page.evaluate("[...document.querySelectorAll('a.row')].find(row => row.innerText.includes('payments')).click()")
        await page.until("document.querySelector('.panel') !== null")
        await page.evaluate("document.querySelectorAll('.panel details').forEach(each => { each.open = true; })")
        text = await page.evaluate("document.querySelector('.panel').innerText")
    for expected in (
        "partly failing",
        "2 of 3 endpoints",
        "10.20.0.9:8443",
        "payments.internal",
        "TLS_AES_256_GCM_SHA384",
        "TLS because of BackendTLSPolicy billing/payments",
        "caCertificateRefs",
        "kind: HTTPRoute",
        "BEGIN CERTIFICATE",
        "kind: Gateway",
    ):
        assert expected in text, expected
    assert "PRIVATE KEY" not in text and "kind: Secret" not in text


async def test_a_backend_is_probed_from_the_page_and_the_refusal_of_an_old_page_is_shown(
    chromium: str, tmp_path: Path
) -> None:
    objects = [*shop.shop(), world.mk_slice("shop/api-1", "api", ["127.0.0.1"], 9)]
    async with page_of(chromium, objects, tmp_path) as (page, _):
        await page.evaluate("[...document.querySelectorAll('a.row')].find(row => row.innerText.includes('shop/api')).click()")
        await page.until("document.querySelector('.panel') !== null")
        await page.evaluate("document.querySelector('.panel form button').click()")
        await page.until("document.getElementById('probed').innerText.includes('127.0.0.1:9')", 30)
        assert await page.evaluate("document.querySelector('#probed .checks li.fail') !== null")
        await page.evaluate("document.querySelector('[name=token]').value = 'of another process'")
        await page.evaluate("document.querySelector('.panel form button').click()")
        await page.until("document.getElementById('probed').innerText.includes('open the backend again')")


HOSTILE = (
    "<script>document.title='owned'</script>",
    "'\"><img src=x onerror=document.title='owned'>",
    "{{7*7}}",
    "javascript:alert(1)",
    "\u202edrowssap\u202c",
    "\u2066\u200f\u061c",
    "x" * 3000,
    "line\nbreak\r\x1b[31m",
    "</title></svg></details><style>*{display:none}</style>",
)


@pytest.mark.parametrize("text", HOSTILE)
async def test_untrusted_text_is_shown_as_text_everywhere(text: str, chromium: str, tmp_path: Path) -> None:
    namespace = "n"
    objects: list[Any] = [
        world.mk_class(),
        world.mk_gateway(f"{namespace}/{text}", [shop.listener("http", 80, "HTTP", text), shop.listener("other", 81, "HTTP")]),
        world.mk_service(f"{namespace}/{text}"),
        world.mk_slice(f"{namespace}/slice", text, ["127.0.0.1"], 9),
        world.mk_policy(f"{namespace}/{text}", text, text, [text]),
        world.mk_config_map(f"{namespace}/{text}", text),
        world.mk_route(f"{namespace}/{text}", f"{namespace}/{text}", [{"name": text, "port": 443}]),
    ]
    wire = shop.Wire()
    hop = Hop(world.key(objects[1]), world.key(objects[2]), 443, Protocol.AUTO)
    leaf = LeafCertificate(text[:300], text[:300], (text[:300],), -1e30, 1e30)
    wire.saw(hop, 1.0, 1.0, shop.bad("127.0.0.1:9", text[:300], 5, leaf))
    async with page_of(chromium, objects, tmp_path, wire) as (page, _):
        elements = await page.evaluate("document.querySelectorAll('script, img, style, iframe, object').length")
        for width in WIDTHS.values():
            await page.resize(*width)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        await page.evaluate("document.querySelector('a.row').click()")
        await page.until("document.querySelector('.panel') !== null")
        await page.evaluate("document.querySelectorAll('.panel details').forEach(each => { each.open = true; })")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.evaluate("document.title") == "Lasthop"
        assert await page.evaluate("document.querySelectorAll('script, img, style, iframe, object').length") == elements == 2
        odd = r"/[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\x1b]/.test(document.documentElement.outerHTML)"
        assert not await page.evaluate(odd), "nothing that reorders or hides text"
        assert "49" not in await page.evaluate("document.querySelector('.panel h2').innerText")


MANY = 5000


async def test_five_thousand_hops_stay_quick_and_what_fails_is_on_top(chromium: str, tmp_path: Path) -> None:
    objects: list[Object] = [world.mk_class(), world.mk_gateway("edge/web", [shop.listener("http", 80, "HTTP")])]
    wire = shop.Wire()
    for number in range(MANY):
        namespace, name = f"team-{number % 12}", f"service-{number}"
        if number < 12:
            objects.append(world.mk_config_map(f"{namespace}/ca", world.ca_pem("CA")))
        objects += shop.backend(namespace, name, shop.WEB, slices=False)
        hop = shop.service_hop(f"{namespace}/{name}")
        fails = number % 1000 == 7
        words = "certificate has expired"
        seen = shop.bad("10.0.0.1:1", words, 9) if fails else shop.good("10.0.0.1:1", shop.leaf(name, number % 90 + 1))
        wire.saw(hop, 1.0, 1.0 if fails else 0.0, seen)
    loop = asyncio.get_running_loop()
    async with page_of(chromium, objects, tmp_path, wire) as (page, url):
        await page.until("document.querySelectorAll('a.row.failing').length === 5")
        states = await page.evaluate("[...document.querySelectorAll('a.row')].map(row => row.classList.contains('failing'))")
        assert states[:5] == [True] * 5 and len(states) == 5 + 12, "the others are one line for each namespace"
        assert await page.evaluate("document.querySelectorAll('*').length") < 3000
        times = {}
        for name, address in {
            "again": url,
            "list": f"{url}?page=1",
            "last page": f"{url}?page=125",
            "search": f"{url}?q=service-4321",
            "namespace": f"{url}?namespace=team-3&state=verified&page=2",
        }.items():
            begun = loop.time()
            await page.open(address)
            await page.until("document.querySelector('a.row') !== null")
            times[name] = loop.time() - begun
        assert max(times.values()) < 10.0, times
        await page.open(url)
        await page.until(LOADED)
        await page.press("/")
        begun = loop.time()
        await page.type("service-4321")
        await page.until("document.querySelectorAll('a.row').length === 1")
        assert loop.time() - begun < 5.0
