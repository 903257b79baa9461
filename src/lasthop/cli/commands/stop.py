"""`lasthop stop [DIR]`: ends a gateway of this machine, and proxies that a killed gateway left."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from lasthop.base.text.printable import printable
from lasthop.cli.args import local, target

POLL: Final = 0.5


@click.command("stop")
@click.argument("folder", metavar="[DIR]", required=False, type=target.PATH)
@click.option("--all", "everything", is_flag=True, help="All gateways of this user.")
@click.option("--now", is_flag=True, help="Do not wait for requests in flight.")
@target.same_folder
@target.admin
@click.option("--left", hidden=True, help="Only proxies left under this token, once its time is over.")
def command(folder: Path | None, everything: bool, now: bool, by_option: Path | None, left: str | None) -> None:
    """End the gateway that runs on DIR: drain its proxies, let requests in flight finish, and end.

    Also ends proxies left by a killed `lasthop run`, or by one started with --handover. Without DIR, it ends the only gateway
    of this user on this machine. Exits with 0 if nothing runs (any more).

    \b
    Examples:
      lasthop stop
      lasthop stop objects --now
      lasthop stop --all
    """
    if left:
        assert folder is not None
        _end_leftovers(folder, left)
        return
    folder, address = target.folder_or_dir(folder, by_option), target.admin_address()
    if sum((everything, folder is not None, address is not None)) > 1:
        raise click.UsageError("more than one of a folder, --admin and --all is given; remove all but one of them")
    for gateway in local.with_address(*address) if address else local.chosen(folder, everything):
        _end(gateway, now=now)


def _end(gateway: local.LocalGateway, *, now: bool) -> None:
    from lasthop.edge.proxy.directory import ProxyDirectory, RunDirLocked
    from lasthop.edge.proxy.drain import GRACE_SECONDS, end_orphans

    name = printable(gateway.name)
    if not gateway.run_dir.exists():
        click.echo(f"Nothing runs on {name}")
        local.note_others()
        return
    if pid := local.holder(gateway.run_dir):
        click.echo(f"Ending the gateway on {name} (pid {pid})")
        if not local.interrupt(gateway.run_dir, now=now):
            raise click.ClickException(f"pid {pid} does not end; end it with: kill -9 {pid}, and then: lasthop stop")
    try:
        with ProxyDirectory(gateway.run_dir).locked():
            ended = asyncio.run(end_orphans(gateway.run_dir, (), 0 if now else GRACE_SECONDS))
            local.clear(gateway.run_dir)
    except RunDirLocked as error:
        raise click.ClickException(f"another Lasthop (pid {error.pid}) has just started on {gateway.name}") from None
    if ended:
        click.echo(f"Ended {len(ended)} Envoy{'s' if len(ended) > 1 else ''} without a Lasthop on {name}")
    elif not pid:
        click.echo(f"Nothing runs on {name}")


def _end_leftovers(run_dir: Path, token: str) -> None:
    """Waits until another Lasthop takes over the proxies, or until their time is over, then ends them. Runs in its own
    process, so that the caller does not wait."""
    from lasthop.edge.proxy import handover

    def still() -> handover.Handover | None:
        leftover = handover.read_handover(run_dir)
        return leftover if leftover and leftover.token == token else None

    if os.fork():
        return
    while leftover := still():
        if time.time() >= leftover.until and _end_left(run_dir, still):
            return
        time.sleep(POLL)


def _end_left(run_dir: Path, still: Callable[[], object]) -> bool:
    """Returns False while a Lasthop holds the directory: the previous one, which is about to exit, or the next one, which
    takes over."""
    from lasthop.edge.proxy.directory import ProxyDirectory, RunDirUnusable
    from lasthop.edge.proxy.drain import end_orphans

    try:
        with ProxyDirectory(run_dir).locked():
            if still():  # under the lock no Lasthop can take it
                asyncio.run(end_orphans(run_dir, ()))
                local.clear(run_dir)
            return True
    except (RunDirUnusable, OSError):
        return False
