"""`lasthop run DIR`: a gateway on a folder of YAML files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import click

from lasthop.api.addresses import split_port
from lasthop.cli.args import logging, paths, target
from lasthop.cli.process import first_error, on_signals
from lasthop.cli.render.access_log import AccessLogPrinter, printing
from lasthop.engine import Engine
from lasthop.host import HostRuntime
from lasthop.infra import memory
from lasthop.plan.profile import AccessLog
from lasthop.proxy.binary import EnvoyNotFound, find_envoy
from lasthop.proxy.directory import ProxyDirectory, RunDirLocked
from lasthop.proxy.entry import AccessLogEntry
from lasthop.resolve.settings import Settings
from lasthop.sources.files.folder import FilesError
from lasthop.sources.files.source import FilesSource
from lasthop.web.app import AdminUnusable, serving
from lasthop.web.controller_view import ControllerView


@click.command("run")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--admin", default="127.0.0.1:19000", show_default=True, metavar="HOST:PORT", help="Address of the admin page.")
@click.option(
    "--address",
    default="0.0.0.0",
    show_default=True,
    metavar="IP",
    help="IP address that Gateways without spec.addresses bind to.",
)
@click.option("--concurrency", type=click.IntRange(1), help="Worker threads of each Envoy.  [default: one per CPU]")
@target.allow_files
@click.option(
    "--access-log",
    type=click.Choice([mode.lower() for mode in AccessLog]),
    default=AccessLog.FAILURES.lower(),
    show_default=True,
    help="Which requests are logged, unless a GatewayProfile sets spec.proxy.accessLog.",
)
@logging.options
def command(folder: Path, admin: str, address: str, concurrency: int | None, access_log: str, log_format: str) -> None:
    """Run a gateway on the Gateway API objects in DIR, and watch DIR for edits.

    DIR holds the YAML that you would apply to a cluster: Gateways, HTTPRoutes, BackendTLSPolicies, Services with
    EndpointSlices, ConfigMaps, Secrets; subfolders are included. Edits take effect as soon as they are saved. An invalid file
    is reported with its line, and its last valid content stays in force.

    \b
    Example:
      lasthop run examples/quickstart
      lasthop status

    Failed requests (status 500 and above) are written to standard output, with the reason unless the error came from the
    backend itself: on a terminal one line each, with repetitions counted, and as JSON elsewhere. The log goes to standard
    error. Ctrl-C drains the proxies and exits; a second Ctrl-C exits at once.
    """
    host, port = split_port(admin)
    if not host or not port.isdigit():
        raise click.BadParameter(f"{admin} is not HOST:PORT", param_hint="--admin")
    if not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}; create a minimal working one with: lasthop init {folder}")
    try:
        with printing(log_format) as printer:
            settings = Settings(default_address=address, access_log=AccessLog(access_log.capitalize()))
            asyncio.run(_run(folder, admin, settings, concurrency, printer))
    except* (EnvoyNotFound, FilesError, RunDirLocked, AdminUnusable) as group:
        raise first_error(group) from None


async def _run(folder: Path, admin: str, settings: Settings, concurrency: int | None, printer: AccessLogPrinter) -> None:
    envoy = find_envoy()
    run_dir = paths.private(paths.of_folder(paths.runtime_root(), folder))
    state = paths.private(paths.of_folder(paths.state_root(), folder))
    source = FilesSource(folder, state, target.allowed_files())

    def logged(entry: AccessLogEntry) -> None:
        printer(entry)
        if entry.failed:
            view.failed(entry)

    runtime = HostRuntime(
        source,
        envoy,
        run_dir,
        engine=Engine(settings, now=time.time()),
        entry=logged,
        concurrency=concurrency,
        remembered=state / memory.FILE,
    )
    view = ControllerView(runtime, source.locate, f"folder {folder}")
    on_signals(runtime.stop)
    # Locked first: a second gateway on the same folder must not remove the sockets of the first.
    with ProxyDirectory(run_dir).locked():
        async with serving(view, admin, run_dir / paths.ADMIN_SOCKET):
            runtime.controller.log.info("running", folder=str(folder), admin=f"http://{admin}", pid=os.getpid())
            await runtime.run()
