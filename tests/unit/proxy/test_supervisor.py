"""The Envoy of one Gateway, with a real Envoy: it outlives Lasthop, is adopted by the next one, restarts after a crash, and
stops on request."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from lasthop.edge.proxy.binary import Envoy, find_envoy
from lasthop.edge.proxy.directory import RunDirUnusable
from lasthop.edge.proxy.drain import end_orphans
from lasthop.edge.proxy.handle import find_envoys
from lasthop.edge.proxy.supervisor import EnvoyExited, EnvoyStarted, Proxy, ProxyEvent
from tests.backends import PATIENCE
from tests.ports import free_port
from tests.unit.proxy.ads import ads_server

GATEWAY = "shop/web"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def run_dir(folder: Path) -> Iterator[Path]:
    yield folder
    for running in find_envoys(folder):
        running.signal(signal.SIGKILL)
        running.exit_code()
        running.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (what is waited for is another process)
            await asyncio.sleep(0.02)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


class Supervised:
    """A proxy that runs for the length of a test."""

    def __init__(self, run_dir: Path, *, gateway: str = GATEWAY, concurrency: int = 1, envoy: Envoy | None = None) -> None:
        self.events: list[ProxyEvent] = []
        self.proxy = Proxy(
            gateway,
            envoy or find_envoy(),
            run_dir=run_dir,
            xds_socket=run_dir / "xds.sock",
            report=self.events.append,
            concurrency=concurrency,
        )

    @property
    def started(self) -> list[EnvoyStarted]:
        return [event for event in self.events if isinstance(event, EnvoyStarted)]

    @property
    def ended(self) -> list[EnvoyExited]:
        return [event for event in self.events if isinstance(event, EnvoyExited)]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.proxy.run())
            await until(lambda: self.events or task.done())
            yield task
            self.proxy.stop(0)


def supervisor(run_dir: Path, port: int) -> subprocess.Popen[str]:
    command: list[str | Path] = [sys.executable, "-m", "tests.unit.proxy.supervisor", run_dir, str(port)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def heard(process: subprocess.Popen[str], *words: str) -> list[str]:
    """Returns the rest of the line after each of these first words; the lines may come in any order."""
    assert process.stdout is not None
    by_word: dict[str, str] = {}
    for line in process.stdout:
        word, _, rest = line.strip().partition(" ")
        by_word.setdefault(word, rest)
        if by_word.keys() >= {*words}:
            return [by_word[word] for word in words]
    raise AssertionError(f"of {words} it said only {by_word}")


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_envoy_serves_on_when_lasthop_is_killed_and_the_next_lasthop_takes_it_over(run_dir: Path) -> None:
    port = free_port()
    first = supervisor(run_dir, port)
    pid, gateway = heard(first, "started", "attached")
    assert gateway == GATEWAY
    await until(lambda: answers(port))
    first.kill()
    first.communicate()
    await until(lambda: parent(int(pid)) != first.pid)  # processes that die with their parent have been signalled by now
    assert answers(port) and alive(int(pid)), "Envoy died with its parent"

    second = supervisor(run_dir, port)
    assert heard(second, "adopted", "attached") == [pid, GATEWAY]
    assert answers(port)

    second.terminate()
    rest, _ = second.communicate(timeout=20)
    assert rest == "" and second.returncode == 0
    assert not answers(port)
    assert not find_envoys(run_dir)


async def test_envoy_that_is_killed_comes_back_and_the_report_says_how_it_ended(run_dir: Path) -> None:
    port = free_port()
    supervised = Supervised(run_dir)
    async with ads_server(run_dir / "xds.sock", port), supervised.running():
        await until(lambda: answers(port))
        os.kill(supervised.started[0].pid, signal.SIGKILL)
        await until(lambda: len(supervised.started) == 2)
        await until(lambda: answers(port))
    assert supervised.ended[0].reason == "was killed by signal 9"
    assert supervised.ended[0].retry_in == 0
    assert supervised.started[0].pid != supervised.started[1].pid


async def test_an_adopted_envoy_that_ends_is_replaced_too(run_dir: Path) -> None:
    port = free_port()
    first = supervisor(run_dir, port)
    pid = int(*heard(first, "started"))
    first.kill()
    first.communicate()
    supervised = Supervised(run_dir)
    async with ads_server(run_dir / "xds.sock", port), supervised.running():
        assert supervised.started[0] == EnvoyStarted(GATEWAY, pid, adopted=True)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: len(supervised.started) == 2)
        assert not supervised.started[1].adopted
        await until(lambda: answers(port))


async def test_an_envoy_that_cannot_start_is_tried_again_with_growing_pauses_and_the_end_of_its_log_is_reported(
    run_dir: Path,
) -> None:
    broken = run_dir / "envoy"
    broken.write_text("#!/bin/sh\necho the moon is in the wrong place >&2\nexit 3\n")
    broken.chmod(0o755)
    supervised = Supervised(run_dir, envoy=Envoy(broken, (1, 40, 0)))
    async with supervised.running():
        await until(lambda: len(supervised.ended) >= 3)
    assert [event.retry_in for event in supervised.ended[:3]] == [0.0, 0.5, 1.0]
    assert supervised.ended[0].reason == "exited with code 3"
    assert supervised.ended[0].log_tail == ("the moon is in the wrong place",)
    assert "restarting in 0.5 s\n  the moon is in the wrong place" in str(supervised.ended[1])


async def test_a_binary_that_has_gone_away_is_reported_and_tried_again(run_dir: Path) -> None:
    supervised = Supervised(run_dir, envoy=Envoy(run_dir / "gone", (1, 40, 0)))
    async with supervised.running():
        await until(lambda: len(supervised.ended) >= 2)
    assert "does not start: [Errno 2]" in supervised.ended[0].reason


async def test_an_envoy_with_other_settings_is_replaced_and_ends_only_when_the_new_one_serves(run_dir: Path) -> None:
    port = free_port()
    first = supervisor(run_dir, port)
    old = int(*heard(first, "started"))
    await until(lambda: answers(port))
    first.kill()
    first.communicate()
    supervised = Supervised(run_dir, concurrency=2)
    async with supervised.running():
        new = supervised.started[0].pid
        assert new != old and not supervised.started[0].adopted
        async with asyncio.timeout(PATIENCE):
            while not (state := await supervised.proxy.admin.state()):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
        assert state.endswith("INITIALIZING")
        assert alive(old) and answers(port), "the old one must serve while the new one has no configuration"
        async with ads_server(run_dir / "xds.sock", port):
            await until(lambda: not alive(old))
            assert await supervised.proxy.admin.ready()
            for _ in range(5):
                assert answers(port)
    assert not list(supervised.proxy.folder.path.glob("admin.*.sock"))


async def test_an_envoy_whose_drain_was_interrupted_is_not_adopted(run_dir: Path) -> None:
    port = free_port()
    first = supervisor(run_dir, port)
    old = int(*heard(first, "started"))
    await until(lambda: answers(port))
    first.kill()
    first.communicate()
    supervised = Supervised(run_dir)
    await supervised.proxy.admin.fail_health_check()
    await supervised.proxy.admin.drain_listeners()
    async with ads_server(run_dir / "xds.sock", port), supervised.running():
        assert supervised.started[0].pid != old
        await until(lambda: answers(port))
        await until(lambda: not alive(old))


async def test_cancelling_leaves_envoy_serving(run_dir: Path) -> None:
    port = free_port()
    supervised = Supervised(run_dir)
    async with ads_server(run_dir / "xds.sock", port), supervised.running() as task:
        await until(lambda: answers(port))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert answers(port)


async def test_two_lasthops_on_one_run_directory_are_refused_with_a_sentence(run_dir: Path) -> None:
    first = supervisor(run_dir, free_port())
    heard(first, "started")
    sentence = rf"Another Lasthop \(pid {first.pid}\) is running with .* choose another run directory"
    with pytest.raises(RunDirUnusable, match=sentence):
        await Supervised(run_dir).proxy.run()
    first.terminate()
    first.communicate(timeout=20)


async def test_a_gateway_that_comes_back_while_its_last_envoy_drains_gets_a_new_one(run_dir: Path) -> None:
    port = free_port()
    deleted, created = Supervised(run_dir), Supervised(run_dir)
    async with ads_server(run_dir / "xds.sock", port), asyncio.TaskGroup() as group:
        group.create_task(deleted.proxy.run())
        await until(lambda: answers(port))
        deleted.proxy.stop()
        group.create_task(created.proxy.run())
        await until(lambda: created.started)
        assert not alive(deleted.started[0].pid)
        await until(lambda: answers(port))
        created.proxy.stop()


async def test_a_run_directory_too_deep_for_a_socket_is_refused_with_a_sentence(run_dir: Path) -> None:
    with pytest.raises(RunDirUnusable, match="too long a path for a unix socket"):
        await Supervised(run_dir / ("x" * 100)).proxy.run()


async def test_envoys_of_gateways_that_are_gone_are_ended_and_the_others_left_alone(run_dir: Path) -> None:
    kept = Supervised(run_dir)
    async with kept.running():
        gone = Supervised(run_dir, gateway="shop/gone")
        async with gone.running() as task:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        pid = gone.started[0].pid
        assert alive(pid)
        assert await end_orphans(run_dir, {GATEWAY}) == [pid]
        assert not alive(pid)
        assert not gone.proxy.folder.path.exists()
        assert kept.proxy.pid == kept.started[0].pid
        assert await end_orphans(run_dir, set()) == [], "what another Lasthop looks after is not ours to end"
        assert kept.proxy.pid == kept.started[0].pid


async def test_files_are_in_its_folder_and_for_their_owner_only(run_dir: Path) -> None:
    supervised = Supervised(run_dir)
    async with supervised.running():
        path = supervised.proxy.folder.path
        await until(lambda: supervised.proxy.folder.admin_socket.exists())
        assert path.stat().st_mode & 0o777 == 0o700
        assert Path(f"/proc/{supervised.proxy.pid}/cwd").resolve() == path.resolve(), "where `access.log` goes"
        # Envoy makes the socket first and then takes the others' rights away.
        await until(lambda: (path / "admin.sock").stat().st_mode & 0o777 == 0o600)
        assert (path / "envoy.log").stat().st_mode & 0o777 == 0o600
