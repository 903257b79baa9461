"""`lasthop top`: rate, errors and latency of a running gateway, by route and by backend."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Final

import click

from lasthop.cli.args import target

INTERVAL: Final = 2.0


@click.command("top")
@click.option("--once", is_flag=True, help="Print the tables once; the same if the output is not a terminal.")
@click.option(
    "--interval", type=click.FloatRange(0.5, 3600), default=INTERVAL, show_default=True, help="Seconds between two looks."
)
@target.running_folder
@target.admin
@target.output("table", "json")
def command(once: bool, interval: float, folder: Path | None, output: str) -> None:
    """Show requests per second, the share that fails and latency, by route and by backend, of the last 10 seconds.

    Reads the gateway that runs on this machine. What fails is first, then what has most requests. ERRORS are answers with 5xx,
    the backend's own too; P50 and P99 are the latency that half of the requests, and 99 of 100, do not exceed. Of TLSRoutes
    and TCPRoutes connections are counted.

    \b
    Examples:
      lasthop top
      lasthop top --once
      lasthop top -o json | jq '.routes[] | select(.figures.errors_per_second > 0) | .route'
    """
    from lasthop.cli.render.top_tables import drawn, plain
    from lasthop.cli.views.admin_socket import AdminSocketView

    view = AdminSocketView(target.running_gateway(folder, "scrape the controller's metrics"))
    if output == "json":
        click.echo(json.dumps(view.ask("/api/traffic"), indent=2))
        return
    if once or not sys.stdout.isatty():
        click.echo(plain(view.ask("/api/traffic"), time.time()))
        return
    from rich.live import Live

    with contextlib.suppress(KeyboardInterrupt), Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(drawn(view.ask("/api/traffic"), time.time(), live.console.height), refresh=True)
            time.sleep(interval)
