"""`lasthop dashboard`: opens the page of a running gateway, or of the controller of a cluster."""

from __future__ import annotations

import asyncio
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lasthop.base.api.addresses import split_port, with_port
from lasthop.cli.args import target
from lasthop.cli.args.target import ClusterOptions
from lasthop.cli.render.terminal import note
from lasthop.cli.views.admin_socket import AdminSocketView

if TYPE_CHECKING:
    from lasthop.edge.kubernetes.client import Client
    from lasthop.edge.kubernetes.errors import ApiError

ANSWER_WITHIN: Final = 10.0


@click.command("dashboard")
@target.running_folder
@target.admin
@target.controller
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Local port for a cluster.  [default: a free one]")
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
def command(folder: Path | None, cluster: ClusterOptions, namespace: str, port: int, no_open: bool) -> None:
    """Open the page that shows the state of every backend connection, and the reason for each failure.

    For the gateway that runs on this machine, prints the address, opens it and exits. For a cluster, forwards a local port to
    the leading controller with your permissions (get and create on pods/portforward), until Ctrl-C. Only this machine, but
    every user on it, can reach the port.

    \b
    Examples:
      lasthop dashboard
      lasthop dashboard --context prod --port 19000
      lasthop dashboard --context prod --no-open
    """
    if socket := target.admin_socket(folder, cluster):
        admin = AdminSocketView(socket).ask("/api/about")["admin"]
        # The address of --admin may be the local end of a port-forward, and the gateway's own address the other end.
        show(local_url(admin if isinstance(socket, Path) else with_port(*socket)), browser=not no_open)
        return
    from lasthop.cli.views.leader import run

    run(cluster, lambda client: forward(client, namespace, port, browser=not no_open))


def local_url(admin: str) -> str:
    """Returns the page's URL for a browser on this machine, from the address that `--admin` binds."""
    host, port = split_port(admin)
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{with_port(local, port)}/"


def show(url: str, *, browser: bool) -> None:
    click.echo(url)
    if browser:
        webbrowser.open(url)


async def forward(client: Client, namespace: str, port: int, *, browser: bool) -> None:
    """Forwards until it is cancelled. Raises a readable error without a target."""
    from lasthop.cli.views.leader import Leader, in_words
    from lasthop.edge.kubernetes.errors import ApiError
    from lasthop.edge.kubernetes.port_forward import forwarding

    leader = Leader(client, namespace)
    try:
        _, name, _ = await leader.find()
    except ApiError as error:
        raise click.ClickException(in_words(error, namespace)) from None
    reported: set[str] = set()
    failed = True

    def on_error(error: ApiError) -> None:
        leader.forget()
        if (words := in_words(error, namespace)) not in reported:  # the page polls each second
            reported.add(words)
            if not failed:
                note(words)

    try:
        async with forwarding(client, leader.find, on_error, port) as local:
            failed = not await _answers(local)
            if failed:
                words = "; ".join(reported) or f"the controller in Pod {namespace}/{name} does not answer"
                raise click.ClickException(words)
            note(f"Pod {namespace}/{name} leads; Ctrl-C ends the forwarding")
            show(f"http://127.0.0.1:{local}/", browser=browser)
            await asyncio.Event().wait()
    except OSError as error:
        raise click.ClickException(f"port {port} of this machine cannot be used: {error.strerror or error}") from None


async def _answers(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return bool(await reader.read(1))
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
