"""Permissions and limits of probes from the page."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lasthop.edge.probe.result import ProbeResult
from lasthop.web.probing import AT_ONCE, KEPT, WAITING, Probes, TooMany
from tests import world
from tests.web import shop

RESULT = ProbeResult("Service shop/api", ())


class Connections:
    """A port that counts who connects, and closes at once."""

    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.count += 1
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]


def backend(port: int) -> list[Any]:
    return [
        world.mk_class(),
        world.mk_gateway("edge/web", infrastructure={}),
        world.mk_service("shop/api"),
        world.mk_slice("shop/api-1", "api", ["127.0.0.1"], port),
        world.mk_policy("shop/api", "api", "api.internal", ["ca"]),
        world.mk_config_map("shop/ca", world.ca_pem("CA")),
        world.mk_route("shop/api", "edge/web", [{"name": "api", "port": 443}], ["api.example"]),
    ]


class Page:
    """A user who has opened the page and the one line in it."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.hop = self.token = ""

    async def read(self) -> None:
        page = await (await self.session.get(f"{self.url}/")).text()
        (self.hop,) = set(re.findall(r'id="h-(\w+)"', page))
        detail = await (await self.session.get(f"{self.url}/detail?hop={self.hop}")).text()
        (self.token,) = re.findall(r'name="token" value="([\w-]+)"', detail)

    async def post(self, headers: Mapping[str, str] | None = None, **form: str) -> tuple[int, str]:
        data = {"hop": self.hop, "token": self.token, **form}
        sent = {"Origin": self.url, **(headers or {})}
        async with self.session.post(f"{self.url}/probe", data=data, headers=sent) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def page_of(objects: list[Any], tmp_path: Path) -> AsyncIterator[Page]:
    async with shop.opened(objects, tmp_path / "s") as (_, port), aiohttp.ClientSession() as session:
        page = Page(session, f"http://127.0.0.1:{port}")
        await page.read()
        yield page


async def test_a_reader_of_the_page_can_probe_a_line_of_it(tmp_path: Path) -> None:
    connections = Connections()
    async with connections.listening() as port, page_of(backend(port), tmp_path) as page:
        status, text = await page.post()
    assert status == 200 and f"127.0.0.1:{port}" in text and "fails" in text
    assert connections.count >= 1


@pytest.mark.parametrize(
    "headers, form, status",
    [
        ({"Origin": "http://evil.example"}, {}, 403),
        ({"Origin": "null"}, {}, 403),
        ({"Origin": "http://127.0.0.1:1"}, {}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, {}, 403),
        ({"Sec-Fetch-Site": "same-site"}, {}, 403),
        ({}, {"token": "with_suggestion"}, 403),
        ({}, {"token": ""}, 403),
        ({}, {"token": "ü"}, 403),
        ({"Host": "evil.example"}, {}, 421),
        ({"X-Forwarded-For": "192.0.2.1"}, {}, 421),
        ({}, {"hop": "0123456789abcdef"}, 404),
        ({}, {"hop": "127.0.0.1:22"}, 404),
        ({}, {"hop": ""}, 404),
        ({}, {"hop": "x" * 5000}, 413),
    ],
)
async def test_other_origins_cannot_make_the_gateway_connect(
    headers: dict[str, str], form: dict[str, str], status: int, tmp_path: Path
) -> None:
    connections = Connections()
    async with connections.listening() as port, page_of(backend(port), tmp_path) as page:
        status_code, _ = await page.post(headers, **form)
    assert (status_code, connections.count) == (status, 0)


async def test_an_address_in_a_request_is_never_connected_to(tmp_path: Path) -> None:
    """The API of the command line has it, for the user whose gateway it is; the page has no such field."""
    asked, configured = Connections(), Connections()
    async with asked.listening() as other, configured.listening() as port, page_of(backend(port), tmp_path) as page:
        status, _ = await page.post(
            address=f"127.0.0.1:{other}", kind="Service", namespace="shop", name="api", port=str(other)
        )
    assert status == 200 and asked.count == 0 and configured.count >= 1


async def test_a_get_request_probes_nothing(tmp_path: Path) -> None:
    connections = Connections()
    async with connections.listening() as port, page_of(backend(port), tmp_path) as page:
        answer = await page.session.get(f"{page.url}/probe?hop={page.hop}&token={page.token}")
    assert answer.status == 405
    assert connections.count == 0


async def test_asking_again_and_again_connects_once(tmp_path: Path) -> None:
    connections = Connections()
    async with connections.listening() as port, page_of(backend(port), tmp_path) as page:
        await page.post()
        once = connections.count
        for _ in range(20):
            assert (await page.post())[0] == 200
    assert connections.count == once


async def test_a_result_is_kept_for_some_seconds_and_then_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made, now = 0, 0.0

    async def make(line: str) -> ProbeResult:
        nonlocal made
        made += 1
        return RESULT

    monkeypatch.setattr(time, "monotonic", lambda: now)
    probes = Probes(make)
    await probes.get("a")
    now = KEPT - 0.1
    await probes.get("a")
    assert made == 1
    now = KEPT + 0.1
    await probes.get("a")
    assert made == 2


async def test_few_probes_are_made_at_once_and_few_may_wait() -> None:
    running, most, go = 0, 0, asyncio.Event()

    async def make(line: str) -> ProbeResult:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        return RESULT

    probes = Probes(make)
    async with asyncio.TaskGroup() as tasks:
        for number in range(WAITING):
            tasks.create_task(probes.get(f"line {number}"))
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await probes.get("one more")
        go.set()
    assert most == AT_ONCE
    assert await probes.get("one more") == RESULT, "there is room again"
    assert not probes._locks and not probes._asked, "nothing is kept of those who asked"


def test_the_token_is_another_for_each_process_and_too_long_to_guess() -> None:
    async def make(line: str) -> None:
        return None

    tokens = {Probes(make).token for _ in range(10)}
    assert len(tokens) == 10 and min(map(len, tokens)) >= 32
