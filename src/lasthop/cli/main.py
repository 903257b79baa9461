"""`lasthop`: the commands. Each is imported only when it is called, so that the CLI starts quickly."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import Final

import click

COMMANDS: Final = {
    "run": "Run a gateway on a folder of YAML files.",
    "proxy": "Run the proxy of one Gateway in a Pod (Lasthop starts it).",
    "install": "Install Lasthop into a cluster, or print what would be installed.",
    "status": "Show how the running gateway's objects stand.",
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"lasthop.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("lasthop"), prog_name="lasthop")
def main() -> None:
    """A Gateway API implementation that takes the last hop seriously: the connection from the gateway to the backend is
    verified as its BackendTLSPolicy asks, or it fails; it is never plaintext instead.

    \b
    Try it:
      lasthop run examples/quickstart     a gateway on a folder of YAML, no cluster needed
      lasthop status                      how its Gateways, routes and policies stand
    """


if __name__ == "__main__":
    main()
