"""`lasthop tap`: shows the requests of a running gateway as they come in."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from lasthop.base.api.route_kinds import ROUTE_KINDS
from lasthop.base.text.printable import printable
from lasthop.base.text.suggestions import closest
from lasthop.cli.args import jsonpath, target
from lasthop.cli.args.objects import named_by
from lasthop.cli.render.terminal import note
from lasthop.cli.views.admin_socket import AdminSocketView
from lasthop.cli.views.command_view import without_loop
from lasthop.edge.unix_http import Endpoint

BACKEND_KINDS: Final = ("Service", "ServiceImport", "XBackend")
ELSEWHERE: Final = (
    "rates and failures: lasthop top --context; requests one by one: kubectl logs -f -n NAMESPACE -l "
    "gateway.networking.k8s.io/gateway-name=GATEWAY"
)


@click.command("tap")
@click.option("--failed", is_flag=True, help="Only requests that failed.")
@click.option("--route", metavar="ROUTE", default="", help="Only those of this route: httproute/shop/web, shop/web or web.")
@click.option("--backend", metavar="BACKEND", default="", help="Only those to this Service or XBackend: shop/api or api.")
@click.option("-c", "--count", type=click.IntRange(1), help="Exit after this many requests.")
@target.running_folder
@target.admin
@target.output("text", "json")
def command(
    failed: bool,
    route: str,
    backend: str,
    count: int | None,
    folder: Path | None,
    output: str,
) -> None:
    """Show the requests of the gateway that runs on this machine as they come in, a line each, until Ctrl-C.

    A line has the time, status, request, backend, endpoint and duration; for a failed request, the reason and a remedy. While
    it runs, the proxies log every request, up to 1,000 per second; above that it shows a sample, and a note states its size.
    Connections of TLSRoutes and TCPRoutes appear when they end.

    In a cluster, the logs of the proxies' Pods have the requests, and lasthop top --context has rates and failures.

    \b
    Examples:
      lasthop tap
      lasthop tap --failed --backend shop/api
      lasthop tap --route httproute/shop/web -c 10
      lasthop tap -o json | jq -r 'select(.duration_ms > 500) | .path'
    """
    socket = target.running_gateway(folder, ELSEWHERE)
    route, backend = _as_known(socket, route, ROUTE_KINDS), _as_known(socket, backend, BACKEND_KINDS)
    query = {"failed": "true" if failed else "", "route": route, "backend": backend}
    with contextlib.suppress(KeyboardInterrupt):
        _show(_lines(socket, query), output, count)


def _as_known(socket: Endpoint, argument: str, kinds: Iterable[str]) -> str:
    """Returns a name as the gateway writes it. Notes a name that does not exist: no request would ever match it."""
    if not argument:
        return ""
    from lasthop.base.api.meta import Key

    view = AdminSocketView(socket)
    keys = [Key(kind, *pair) for kind in kinds for pair in without_loop(view.names(kind))]
    matches = named_by(argument, keys)
    if not matches:
        close = closest(argument, [name for key in keys for name in (key.name, key.path)])
        note(f"nothing is called {printable(argument)} yet{f'; did you mean {printable(close)}?' if close else ''}")
    return matches[0].argument if len(matches) == 1 else argument


def _show(lines: Iterator[dict[str, Any]], output: str, count: int | None) -> None:
    import sys

    import msgspec

    from lasthop.base.text import terminal
    from lasthop.cli.render.request_lines import request_line
    from lasthop.edge.proxy.entry import AccessLogEntry

    shown, share, colours = 0, 1.0, terminal.coloured(sys.stdout)
    for entry in lines:
        if missed := entry.get("missed"):
            note(f"{missed:,} requests were skipped: there are more than can be shown")
            continue
        stands_for = entry.pop("stands_for", 1.0)
        if not 0.5 < stands_for / share < 2:
            share = stands_for
            note(f"showing about 1 of {share:,.0f} requests" if share > 1 else "showing every request again")
        if output == "json":
            jsonpath.echo_json(json.dumps({**entry, "stands_for": stands_for} if stands_for > 1 else entry))
        else:
            click.echo(request_line(msgspec.convert(entry, AccessLogEntry), colours=colours))
        shown += 1
        if shown == count:
            return


def _lines(socket: Endpoint, query: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yields the requests and notes that the gateway sends. An empty object only shows that the gateway is alive."""
    from lasthop.edge import unix_http

    try:
        for line in unix_http.stream(socket, f"/api/tap?{urlencode(query)}"):
            if entry := json.loads(line):
                yield entry
    except unix_http.ErrorResponse as error:
        raise click.ClickException(error.text) from None
    except (OSError, unix_http.BadResponse) as error:
        raise click.ClickException(f"the gateway does not answer on {AdminSocketView(socket).address}: {error}") from None
    raise click.ClickException("the gateway has stopped")
