"""`lasthop top`: shows rate, errors and latency of a running gateway, by route and by backend."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lasthop.base.api.documents import Json
from lasthop.base.text import terminal
from lasthop.cli.args import jsonpath, target
from lasthop.cli.views.admin_socket import AdminSocketView

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client

INTERVAL: Final = 2.0
TRAFFIC: Final = "/api/traffic"
OPEN, HOME, END_OF_LINE, END, CLOSE = "\x1b[?1049h\x1b[?25l", "\x1b[H", "\x1b[K\n", "\x1b[J", "\x1b[?25h\x1b[?1049l"
"""Switches to the alternate screen without a cursor; leaving it restores the terminal's content."""


@click.command("top")
@click.option("--once", is_flag=True, help="Print the tables once; the same if the output is not a terminal.")
@click.option(
    "--interval", type=click.FloatRange(0.5, 3600), default=INTERVAL, show_default=True, help="Seconds between updates."
)
@target.running_folder
@target.admin
@target.controller
@target.output("table", "json")
def command(
    once: bool, interval: float, folder: Path | None, cluster: target.ClusterOptions, namespace: str, output: str
) -> None:
    """Show requests per second, share of failures and latency of the last 10 seconds, by route and by backend.

    Reads the gateway that runs on this machine; otherwise, or with --context or --kubeconfig, the reports of a cluster's
    proxies to the controller, with your rights (get and create on pods/portforward).

    Failures come first, then the most requests. ERRORS are responses with 5xx, including the backend's own; P50
    and P99 are latency percentiles. For TLSRoutes and TCPRoutes, connections are counted.

    \b
    Examples:
      lasthop top
      lasthop top --once
      lasthop top --context prod
      lasthop top -o json | jq '.routes[] | select(.figures.errors_per_second > 0) | .route'
    """
    live = not once and output == "table" and terminal.moves(sys.stdout)
    if socket := target.admin_socket(folder, cluster):
        view = AdminSocketView(socket)

        async def ask(path: str) -> Json:
            answer: Json = view.ask(path)
            return answer

        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_show(ask, output, interval if live else None))
        return
    from lasthop.cli.views import leader

    async def show(client: Client) -> None:
        async with leader.asking(client, namespace) as ask:
            await _show(ask, output, interval if live else None)

    leader.run(cluster, show)


async def _show(ask: Callable[[str], Awaitable[Json]], output: str, interval: float | None) -> None:
    from lasthop.cli.render.top_tables import text

    report = await ask(TRAFFIC)
    if output == "json":
        jsonpath.echo_json(json.dumps(report, indent=2))
        return
    if interval is None:
        click.echo(text(report, time.time()))
        return
    click.echo(OPEN, nl=False, color=True)
    try:
        while True:
            shown = text(report, time.time(), *shutil.get_terminal_size())
            lines = (shown if terminal.colours_allowed() else click.unstyle(shown)).splitlines()
            click.echo(f"{HOME}{''.join(f'{line}{END_OF_LINE}' for line in lines)}{END}", nl=False, color=True)
            await asyncio.sleep(interval)
            report = await ask(TRAFFIC)
    finally:
        click.echo(CLOSE, nl=False, color=True)
