"""`make run`: demo certificates, demo backends, and `lasthop run` on this folder, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import yaml
from rich.console import Console
from rich.table import Table

from examples.quickstart import certificates
from examples.quickstart.backends import PortTaken, backends

HERE = Path(__file__).parent
ADMIN = ("127.0.0.1", 19000)
READY_WITHIN = 60

EXPECTATIONS = {
    "right": "200",
    "wrong-name": "503: its certificate is for old.example, the policy wants new.example",
    "unknown-ca": "503: its certificate is signed by a CA that the policy does not name",
}

console = Console(highlight=False, soft_wrap=True)


async def main() -> int:
    certificates.ensure(HERE / "certs")
    gateway = gateway_address()
    try:
        # Takes over a gateway that an earlier Lasthop has left running.
        check_free(*gateway, "the Gateway", shared=True)
        check_free(*ADMIN, "Lasthop's admin page")
        async with backends(HERE / "certs"):
            return await run_lasthop(gateway)
    except PortTaken as taken:
        console.print(str(taken), style="bold red")
        return 1


async def run_lasthop(gateway: tuple[str, int]) -> int:
    # A separate process group, so that one Ctrl-C reaches it once: through this process.
    command = (sys.executable, "-m", "lasthop.cli.main", "run", str(shown(HERE)))
    lasthop = await asyncio.create_subprocess_exec(*command, process_group=0)
    stopping = False

    def stop() -> None:
        """The second time, Lasthop no longer waits for requests in flight."""
        nonlocal stopping
        if not stopping:
            console.print("\nStopping. Ctrl-C once more to stop at once.")
        stopping = True
        with contextlib.suppress(ProcessLookupError):
            lasthop.send_signal(signal.SIGINT)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as group:
        welcome = group.create_task(welcome_when_ready(gateway))
        code = await lasthop.wait()
        welcome.cancel()
    return 0 if stopping else code


async def welcome_when_ready(gateway: tuple[str, int]) -> None:
    ready = f"http://{ADMIN[0]}:{ADMIN[1]}/readyz"
    try:
        async with asyncio.timeout(READY_WITHIN), aiohttp.ClientSession() as session:
            while not await answers(session, ready):  # noqa: ASYNC110 (another process is waited for)
                await asyncio.sleep(0.1)
    except TimeoutError:
        console.print(f"Lasthop is not ready after {READY_WITHIN} s; the output above and {ready} show the reason.")
        return
    table = Table(title="Lasthop is running", title_justify="left", title_style="bold")
    table.add_column("Try", no_wrap=True)
    table.add_column("Expect")
    for path, expectation in EXPECTATIONS.items():
        table.add_row(f"curl -i http://{gateway[0]}:{gateway[1]}/{path}", expectation)
    console.print(table)
    console.print(f"Admin page: http://{ADMIN[0]}:{ADMIN[1]}/")
    console.print(f"Edit {shown(HERE / 'policy.yaml')} and try again: a saved edit holds from the next request on.")
    console.print("Ctrl-C stops everything.")


async def answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def gateway_address() -> tuple[str, int]:
    """Reads the current gateway.yaml; Lasthop itself reports errors in the file."""
    try:
        documents = yaml.safe_load_all((HERE / "gateway.yaml").read_bytes())
        spec = next(document["spec"] for document in documents if document["kind"] == "Gateway")
        return str(spec["addresses"][0]["value"]), int(spec["listeners"][0]["port"])
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError, StopIteration):
        return "127.0.0.1", 8080


def check_free(host: str, port: int, whose: str, *, shared: bool = False) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            # Succeeds beside an Envoy of ours, which sets it too.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(port, whose) from error
            # Lasthop itself reports any other reason.


def shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(130)
