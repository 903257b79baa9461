"""`lasthop config`: shows the actual configuration of the Envoys of a gateway on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from lasthop.base.api.documents import Json
from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.objects import ObjectRef, one_of
from lasthop.cli.views.admin_socket import AdminSocketView
from lasthop.cli.views.command_view import without_loop

WHAT: Final = ("dump", "clusters", "routes", "listeners", "secrets", "certificates")
TIMEOUT: Final = 120.0
ELSEWHERE: Final = (
    "Envoy's admin API is a socket inside the proxy's Pod; for its intended configuration, use lasthop "
    "explain and lasthop audit"
)


@click.command("config")
@click.argument("what", type=click.Choice(WHAT))
@click.option("--gateway", metavar="NAME", default="", help="Only the Envoy of this Gateway.")
@click.option("--name", metavar="TEXT", default="", help="Only resources whose name contains this.")
@target.output("table", "yaml", "json", help="For a dump, table is the same as yaml.")
@click.option("--no-headers", is_flag=True, help="Leave out the first line of the table.")
@target.running_folder
@target.admin
def command(what: str, gateway: str, name: str, output: str, no_headers: bool, folder: Path | None) -> None:
    """Show Envoy's actual configuration, from its admin API: everything (dump), or one type.

    `lasthop status` and `explain` show the intended configuration. Private keys, passwords and the values of
    headers that are sent to backends or carry credentials are replaced by [redacted]. Only the user that runs the gateway, and
    root, may use it.

    \b
    Examples:
      lasthop config clusters                            verification and endpoints of each backend
      lasthop config listeners --gateway shop/web
      lasthop config clusters --name shop/api -o yaml
      lasthop config certificates                        CAs and certificates with their dates
      lasthop config dump -o json > dump.json
    """
    from lasthop.cli.render.envoy_tables import certificates, resources

    view = AdminSocketView(target.running_gateway(folder, ELSEWHERE))
    if gateway:
        namespace, _, gateway_name = gateway.removeprefix("gateway/").rpartition("/")
        gateway = "/".join(one_of(without_loop(view.names("Gateway")), ObjectRef("Gateway", namespace, gateway_name)))
    dumps = _dumps(view, gateway)
    if what == "dump":
        _print(dumps, "yaml" if output == "table" else output)
    elif output == "table":
        click.echo(_table(dumps, what, name, headers=not no_headers))
    else:
        extract = certificates if what == "certificates" else lambda dump: resources(dump, what)
        _print({path: _named(extract(dump), name) for path, dump in dumps.items()}, output)


def _dumps(view: AdminSocketView, gateway: str) -> dict[str, Json]:
    """Returns the configuration of each Gateway's Envoy. Raises if no Envoy runs, or one does not answer."""
    dumps: dict[str, Json] = view.ask("/api/envoy-config", TIMEOUT, gateway=gateway)
    if not dumps:
        raise click.ClickException(f"no Gateway {gateway} has an Envoy" if gateway else "no Gateway has an Envoy")
    for path, dump in dumps.items():
        if error := dump.get("error"):
            raise click.ClickException(f"Gateway {path}: {error}")
    return dumps


def _table(dumps: dict[str, Json], resource_type: str, name: str, *, headers: bool) -> str:
    """Renders a line for each resource; with several Gateways, the first column names them."""
    from lasthop.cli.render.envoy_tables import HEADS, rows
    from lasthop.cli.render.terminal import table

    cells = [(path, *row) for path, dump in dumps.items() for row in rows(dump, resource_type) if name in row[0]]
    first = 0 if len(dumps) > 1 else 1
    return table(("GATEWAY", *HEADS[resource_type])[first:], [row[first:] for row in cells], headers=headers)


def _named(entries: list[Json], name: str) -> list[Json]:
    return [entry for entry in entries if name in str(entry.get("name"))]


def _print(document: object, output: str) -> None:
    if output == "json":
        jsonpath.echo_json(json.dumps(document, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(document, sort_keys=False).rstrip())
