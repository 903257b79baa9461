"""A Lasthop reduced to its proxy, as a program of its own so that a test can kill it.

Usage: python -m tests.unit.proxy.supervisor RUN_DIR PORT

Prints `started PID`, `adopted PID`, `ended`, and `attached NODE` when an Envoy has found the xDS server.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from lasthop.edge.proxy.binary import find_envoy
from lasthop.edge.proxy.supervisor import EnvoyStarted, Proxy, ProxyEvent
from tests.unit.proxy.ads import ads_server


def say(text: str) -> None:
    print(text, flush=True)


def report(event: ProxyEvent) -> None:
    if isinstance(event, EnvoyStarted):
        say(f"{'adopted' if event.adopted else 'started'} {event.pid}")
    else:
        say("ended")


async def main(run_dir: Path, port: int) -> None:
    xds_socket = run_dir / "xds.sock"
    proxy = Proxy("shop/web", find_envoy(), run_dir=run_dir, xds_socket=xds_socket, report=report, concurrency=1)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, proxy.stop)
    async with ads_server(xds_socket, port, attached=lambda node: say(f"attached {node}")):
        await proxy.run()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
