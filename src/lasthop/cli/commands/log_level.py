"""`lasthop log-level`: shows or sets the log levels of a running gateway and its Envoys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from lasthop.base.text import log_levels
from lasthop.cli.args import jsonpath, target
from lasthop.cli.views.admin_socket import AdminSocketView

PATH: Final = "/api/log-level"
TIMEOUT: Final = 30.0
ELSEWHERE: Final = "the level of the controller is an argument of its Deployment: --log-level"


@click.command("log-level")
@click.argument("level", required=False, type=click.Choice(log_levels.LASTHOP))
@click.option("--envoy", type=click.Choice(log_levels.ENVOY), help="Level of the Envoys, which start with warning.")
@target.output("text", "json")
@target.running_folder
def command(level: str | None, envoy: str | None, output: str, folder: Path | None) -> None:
    """Show the log levels of a running gateway and its Envoys, or set them without a restart.

    Lasthop logs to standard error, an Envoy to envoy.log in its run directory, where debug and trace show the headers of
    requests, credentials included; `lasthop bundle` leaves those messages out. A level holds until the process ends: a gateway
    starts with its --log-level, an Envoy with warning. Only the user that runs the gateway, and root, may use it.

    \b
    Examples:
      lasthop log-level
      lasthop log-level debug
      lasthop log-level --envoy debug
      lasthop log-level info --envoy warning         as at the start
    """
    view = AdminSocketView(target.running_gateway(folder, ELSEWHERE))
    requested = {"lasthop": level or "", "envoy": envoy or ""}
    levels = view.change(PATH, TIMEOUT, **requested) if level or envoy else view.ask(PATH, TIMEOUT)
    if output == "json":
        jsonpath.echo_json(json.dumps(levels, indent=2))
    else:
        click.echo(f"Lasthop  {levels['lasthop']}")
        for gateway, entry in levels["envoy"].items():
            click.echo(f"Envoy    {entry.get('level') or 'unknown'}  of Gateway {gateway}")
    if failed := next((entry["error"] for entry in levels["envoy"].values() if "error" in entry), ""):
        raise click.ClickException(failed)
