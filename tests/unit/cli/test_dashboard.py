"""`lasthop dashboard`: the page of a gateway on this machine, and of the controller of a cluster through the API server."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Callable
from pathlib import Path

import aiohttp
import click
import pytest
from click.testing import CliRunner

from lasthop.cli.commands import dashboard
from lasthop.cli.commands.dashboard import forward, local_url
from lasthop.cli.main import main
from lasthop.cli.views import leader as leaders
from lasthop.cli.views.leader import Leader
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.port_forward import forwarding
from tests.fake_api import until
from tests.pods import PORT, Pods, cluster, pod
from tests.web import shop


async def test_the_page_of_the_leading_controller_is_forwarded(tmp_path: Path) -> None:
    async with (
        cluster("lasthop-a", "lasthop-b", holder="lasthop-b") as (pods, client),
        shop.opened(shop.shop(), tmp_path / "s") as (_, port),
        forwarding(client, Leader(client, "lasthop-system").find, print) as local,
        aiohttp.ClientSession() as session,
    ):
        pods.listening["lasthop-b", PORT] = port
        async with session.get(f"http://127.0.0.1:{local}/") as answer:
            assert answer.status == 200 and "shop/api:443" in await answer.text()
        async with session.get(f"http://127.0.0.1:{local}/static/htmx.min.js") as answer:
            whole = (Path(dashboard.__file__).parents[2] / "web/static/htmx.min.js").read_bytes()
            assert await answer.read() == whole, "larger than any one message"
        assert set(pods.forwarded) == {"lasthop-b"}


async def test_when_another_leads_new_connections_go_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "KNOWN", 0.0)
    async with cluster("a", "b", holder="a") as (pods, client):
        leader = Leader(client, "lasthop-system")
        assert await leader.find() == ("lasthop-system", "a", PORT)
        pods.holder = "b"
        assert await leader.find() == ("lasthop-system", "b", PORT)


async def test_the_admin_port_is_the_one_that_the_pod_names() -> None:
    async with cluster("a", holder="a") as (pods, client):
        pods.pods["a"] = pod("a", 19111)
        assert await Leader(client, "lasthop-system").find() == ("lasthop-system", "a", 19111)


@pytest.mark.parametrize("holder, denied", [("", set()), ("a-laptop-4711", set()), ("b", {"leases"})])
async def test_without_a_lease_that_names_a_pod_a_ready_controller_is_taken(holder: str, denied: set[str]) -> None:
    async with cluster("a", "b", holder=holder) as (pods, client):
        pods.denied = denied
        pods.pods["a"] = pod("a", ready=False)
        assert (await Leader(client, "lasthop-system").find())[1] == "b"


async def test_forwarding_works_without_the_right_to_read_pods() -> None:
    async with cluster("a", holder="a") as (pods, client):
        pods.denied = {"pods"}
        assert await Leader(client, "lasthop-system").find() == ("lasthop-system", "a", PORT)


async def test_without_a_controller_the_error_has_a_remedy() -> None:
    async with cluster() as (_, client):
        with pytest.raises(
            click.ClickException, match=r"no controller of Lasthop runs in namespace lasthop-system.*lasthop install"
        ):
            await forward(client, "lasthop-system", 0, browser=False)


@pytest.mark.parametrize(
    "break_it, words",
    [
        (lambda pods: pods.denied.add("portforward"), "request get and create on pods/portforward"),
        (
            lambda pods: setattr(pods, "opens", False),
            "forwards no port to the controller's Pod in namespace lasthop-system: 404",
        ),
        (lambda pods: None, "failed to connect to localhost:19000"),
        (lambda pods: setattr(pods, "protocol", "v9.unknown"), "does not support the protocol v4.channel.k8s.io"),
    ],
)
async def test_a_forwarding_that_cannot_work_ends_with_the_reason_and_shows_no_address(
    break_it: Callable[[Pods], None], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with cluster("a", holder="a") as (pods, client):
        break_it(pods)
        with pytest.raises(click.ClickException) as raised:
            await forward(client, "lasthop-system", 0, browser=False)
    assert words in raised.value.message
    assert "".join(capsys.readouterr()) == ""


async def test_a_connection_that_fails_later_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        cluster("a", holder="a") as (pods, client),
        shop.opened(shop.shop(), tmp_path / "s") as (_, port),
        asyncio.TaskGroup() as tasks,
    ):
        pods.listening["a", PORT] = port
        running = tasks.create_task(forward(client, "lasthop-system", 0, browser=False))
        output = ""

        def shown() -> bool:
            nonlocal output
            output += "".join(capsys.readouterr())
            return "http://127.0.0.1:" in output

        await until(shown)
        url = output[output.index("http://127.0.0.1:") :].split()[0]
        pods.denied.add("portforward")
        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                with pytest.raises(aiohttp.ClientError):
                    await session.get(url)
        output += "".join(capsys.readouterr())
        running.cancel()
    assert " ".join(output.split()).count("request get and create on pods/portforward") == 1


async def test_a_taken_port_is_reported() -> None:
    async with cluster("a", holder="a") as (_, client):
        taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with taken:
            port = taken.sockets[0].getsockname()[1]
            with pytest.raises(click.ClickException, match=f"port {port} of this machine cannot be used"):
                await forward(client, "lasthop-system", port, browser=False)


async def test_an_error_of_the_api_server_is_passed_on() -> None:
    async with cluster("a", holder="a") as (pods, client):
        pods.denied = {"leases", "pods"}
        with pytest.raises(ApiError, match="403"):
            await Leader(client, "lasthop-system").find()


@pytest.mark.parametrize(
    "admin, url",
    [
        ("127.0.0.1:19000", "http://127.0.0.1:19000/"),
        ("0.0.0.0:19000", "http://127.0.0.1:19000/"),
        ("[::]:19000", "http://[::1]:19000/"),
        ("[::1]:1", "http://[::1]:1/"),
        ("localhost:1", "http://localhost:1/"),
    ],
)
def test_the_address_is_one_that_a_browser_on_this_machine_can_open(admin: str, url: str) -> None:
    assert local_url(admin) == url


@pytest.mark.parametrize("args, opened", [([], True), (["--no-open"], False)])
async def test_the_page_of_a_gateway_on_this_machine_is_opened(
    args: list[str], opened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened_urls.append)
    monkeypatch.setenv("LASTHOP_RUN_DIR", str(tmp_path))
    (tmp_path / "x").mkdir(mode=0o700)
    async with shop.opened([], tmp_path / "x" / "admin.sock") as (_, port):
        result = await asyncio.to_thread(CliRunner().invoke, main, ["dashboard", *args])
    url = f"http://127.0.0.1:{port}/"
    assert result.exit_code == 0 and url in result.output.split(), result.output
    assert opened_urls == ([url] if opened else [])


async def test_the_pods_of_these_tests_forward_as_a_kubelet_does() -> None:
    """Frame by frame, as the official client (37.0.2) exchanges them: both ends could be mistaken in the same way."""
    greeting = b"hello" * 5000

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"who?\n"
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, cluster("a", holder="a") as (pods, _), aiohttp.ClientSession() as session:
        pods.listening["a", PORT] = server.sockets[0].getsockname()[1]
        url = f"{pods.url}/api/v1/namespaces/lasthop-system/pods/a/portforward?ports={PORT}"
        headers = {"Authorization": "Bearer a token", "Sec-WebSocket-Protocol": "v4.channel.k8s.io"}
        async with session.ws_connect(url, headers=headers) as socket:
            assert {await socket.receive_bytes(), await socket.receive_bytes()} == {
                channel + PORT.to_bytes(2, "little") for channel in (b"\0", b"\1")
            }
            await socket.send_bytes(b"\0who?\n")
            received = b""
            async for message in socket:
                assert message.data[:1] == b"\0"
                received += message.data[1:]
        assert received == greeting
