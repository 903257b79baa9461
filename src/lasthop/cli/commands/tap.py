"""`lasthop tap`: the requests of a running gateway, as they come in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from lasthop.cli.args import target
from lasthop.cli.render.terminal import note
from lasthop.unix_http import Endpoint


@click.command("tap")
@click.option("--failed", is_flag=True, help="Only requests that failed.")
@click.option("--route", metavar="ROUTE", default="", help="Only those of this route: httproute/shop/web, shop/web or web.")
@click.option("--backend", metavar="BACKEND", default="", help="Only those to this Service or XBackend: shop/api or api.")
@click.option("-c", "--count", type=click.IntRange(1), help="End after so many.")
@target.running_folder
@target.admin
@target.output("text", "json")
def command(failed: bool, route: str, backend: str, count: int | None, folder: Path | None, output: str) -> None:
    """Show the requests of the gateway that runs on this machine as they come in, a line each, until Ctrl-C.

    A line has the time, the status, the request, the backend and its endpoint, how long it took, and of a failed request why,
    and what to try. While it runs, the proxies log every request, up to 1,000 a second; of more a share is shown, and a note
    says how large it is. Connections of TLSRoutes and TCPRoutes appear when they end. In a cluster the proxies' own logs have
    it.

    \b
    Examples:
      lasthop tap
      lasthop tap --failed --backend shop/api
      lasthop tap --route httproute/shop/web -c 10
      lasthop tap -o json | jq -r 'select(.duration_ms > 500) | .path'
    """
    socket = target.running_gateway(folder, "see the logs of the proxies' Pods")
    query = {"failed": "true" if failed else "", "route": route, "backend": backend}
    with contextlib.suppress(KeyboardInterrupt):
        _show(_lines(socket, query), output, count)


def _show(lines: Iterator[dict[str, Any]], output: str, count: int | None) -> None:
    import sys

    import msgspec

    from lasthop import logs
    from lasthop.cli.render.request_lines import request_line
    from lasthop.proxy.entry import AccessLogEntry

    shown, share, colours = 0, 1.0, logs.coloured(sys.stdout.isatty())
    for found in lines:
        if missed := found.get("missed"):
            note(f"{missed:,} requests were skipped: there are more than can be shown")
            continue
        stands_for = found.pop("stands_for", 1.0)
        if not 0.5 < stands_for / share < 2:
            share = stands_for
            note(f"showing about 1 of {share:,.0f} requests" if share > 1 else "showing every request again")
        if output == "json":
            click.echo(json.dumps({**found, "stands_for": stands_for} if stands_for > 1 else found))
        else:
            click.echo(request_line(msgspec.convert(found, AccessLogEntry), colours=colours))
        shown += 1
        if shown == count:
            return


def _lines(socket: Endpoint, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yields what the gateway sends; an empty object is only a sign of life."""
    from lasthop import unix_http

    try:
        for line in unix_http.stream(socket, f"/api/tap?{urlencode(query)}"):
            if found := json.loads(line):
                yield found
    except unix_http.Refused as error:
        raise click.ClickException(error.text) from None
    except (OSError, unix_http.BadResponse) as error:
        raise click.ClickException(f"the gateway does not answer on {socket}: {error}") from None
    raise click.ClickException("the gateway has ended")
