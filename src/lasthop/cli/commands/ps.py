"""`lasthop ps`: the gateways of this machine, by folder."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from lasthop.base.text.printable import printable
from lasthop.cli.args import jsonpath, local, paths, target
from lasthop.edge import unix_http

TIMEOUT: Final = 2.0
LARGEST: Final = 1 << 20
"""Maximum size of an answer in bytes, because root queries the gateways of all users."""
HEADS: Final = ("FOLDER", "STATE", "PID", "AGE", "ADMIN", "IN SYNC", "USER", "VERSION", "ENVOY", "ENVOYS")


@click.command("ps")
@target.output("table", "wide", "name", "json", help="wide: also user, versions and Envoys.")
@click.option("--no-headers", is_flag=True, help="Leave out the first line of the table.")
def command(output: str, no_headers: bool) -> None:
    """List the gateways of this machine: those of this user; for root, of all users, and then with USER.

    STATE is running, left or orphaned. left: its Lasthop has ended and left the proxies to the next one (--handover).
    orphaned: its Lasthop was killed, and the proxies serve on until another `lasthop run` takes them over, or `lasthop stop`
    ends them. IN SYNC counts the Gateways whose proxies have acknowledged their whole configuration, and all Gateways; ? if
    the gateway does not answer. -o json lists each Gateway.

    \b
    Examples:
      lasthop ps
      lasthop ps -o wide
      lasthop ps -o json | jq -r '.[] | select(.state == "orphaned") | .folder'
    """
    gateways = local.present()
    entries = [described(gateway, state) for gateway, state in gateways]
    if output == "json":
        jsonpath.echo_json(json.dumps(entries, indent=2))
    elif output == "name":
        click.echo("\n".join(printable(entry["folder"]) for entry in entries))
    elif not entries:
        click.echo("No gateway runs on this machine")
        local.note_others()
    else:
        only_own = all(gateway.is_own for gateway, _ in gateways)
        click.echo(_table(entries, len(HEADS) if output == "wide" else 6 if only_own else 7, headers=not no_headers))


def _table(entries: list[dict[str, Any]], columns: int, *, headers: bool) -> str:
    from lasthop.cli.render.terminal import table

    return table(HEADS[:columns], [_cells(entry)[:columns] for entry in entries], headers=headers)


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    """Returns the cells of a line, see `HEADS`."""
    about = entry["user"], entry["version"], entry["envoy"], " ".join(map(str, entry["envoys"]))
    gateways = entry["gateways"]
    synced = (
        ""
        if not entry["pid"]
        else "?"
        if gateways is None
        else f"{sum(gateway['synced'] for gateway in gateways.values())}/{len(gateways)}"
    )
    return entry["folder"], entry["state"], str(entry["pid"] or ""), _age(entry["started"]), entry["admin"], synced, *about


def _age(started: float | None) -> str:
    from lasthop.cli.render.status_table import age

    return age(datetime.fromtimestamp(started, UTC).isoformat(), time.time()) if started else ""


def _gateways(gateway: local.LocalGateway) -> dict[str, Any] | None:
    """Returns whether the proxies of each Gateway are in sync; None: the gateway does not answer."""
    try:
        status, body = unix_http.get(gateway.run_dir / paths.ADMIN_SOCKET, "/api/proxies", TIMEOUT, most=LARGEST)
        gateways = json.loads(body) if status == 200 else None
    except (OSError, unix_http.BadResponse, ValueError, RecursionError):
        return None
    sound = isinstance(gateways, dict) and all(map(_is_state, gateways.values()))
    return gateways if sound else None


def _is_state(value: Any) -> bool:
    """Validates an entry, because another user's gateway may answer anything."""
    return isinstance(value, dict) and all(
        type(value.get(name)) is kind for name, kind in (("proxies", int), ("synced", bool))
    )


def described(gateway: local.LocalGateway, state: str) -> dict[str, Any]:
    about, pid = gateway.about, local.holder(gateway.run_dir)
    return {
        "folder": gateway.name,
        "state": state,
        "pid": pid or None,
        "started": gateway.started if pid else None,
        "admin": str(about.get("admin", "")) if pid else "",
        "user": paths.user_name(gateway.uid),
        "version": str(about.get("version", "")),
        "envoy": str(about.get("envoy", "")),
        "envoys": local.envoys(gateway),
        "gateways": _gateways(gateway) if pid else None,
        "run_dir": str(gateway.run_dir),
    }
