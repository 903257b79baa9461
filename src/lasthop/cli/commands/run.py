"""`lasthop run DIR`: a gateway on a folder of YAML files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import click

from lasthop.cli.args import local, long_running, paths, target
from lasthop.cli.args.long_running import first_error
from lasthop.cli.args.values import host_port, ip_address
from lasthop.cli.render.access_log import AccessLogPrinter, printing
from lasthop.cli.render.progress import FolderProgress
from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirLocked
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.handover import taken
from lasthop.edge.sources.files.folder import FilesError
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.engine import Engine
from lasthop.engine.plan.profile import AccessLog
from lasthop.engine.resolve.settings import Settings
from lasthop.run import logs
from lasthop.run.endings import Ending, Endings, start_anew, tell_systemd
from lasthop.run.host import HostRuntime
from lasthop.run.infra import memory
from lasthop.web.app import AdminUnusable, serving
from lasthop.web.controller_view import ControllerView

TAKE_OVER_SECONDS: Final = 30.0
"""For the Lasthop that is replaced to end; it may have to wait for a proxy whose Gateway was just deleted."""


@click.command("run")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--admin", default="127.0.0.1:19000", show_default=True, metavar="HOST:PORT", help="Address of the admin page.")
@click.option(
    "--address",
    default="0.0.0.0",
    show_default=True,
    metavar="IP",
    callback=ip_address,
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
@click.option(
    "--handover",
    type=click.IntRange(0, 3600),
    default=0,
    metavar="SECONDS",
    envvar="LASTHOP_HANDOVER",
    help="On SIGTERM, leave the proxies serving for so long, to the `lasthop run` that follows.  [default: drain them]",
)
@click.option("--replace", is_flag=True, help="Take over from the Lasthop that runs on DIR; its proxies serve on.")
@long_running.options
def command(
    folder: Path,
    admin: str,
    address: str,
    concurrency: int | None,
    access_log: str,
    handover: int,
    replace: bool,
    log_format: str,
) -> None:
    """Run a gateway on the Gateway API objects in DIR, and watch DIR for edits.

    DIR holds the YAML that you would apply to a cluster: Gateways, HTTPRoutes, BackendTLSPolicies, Services with
    EndpointSlices, ConfigMaps, Secrets; subfolders are included. Edits take effect as soon as they are saved. An invalid file
    is reported with its line, and its last valid content stays in force.

    \b
    Examples:
      lasthop run examples/quickstart
      lasthop status
      lasthop run examples/quickstart --replace     in another terminal, or with another version: no request fails

    Failed requests (status 500 and above) are written to standard output, with the reason unless the error came from the
    backend itself: on a terminal one line each, with repetitions counted, and as JSON elsewhere. The log goes to standard
    error. Ctrl-C and SIGTERM drain the proxies and exit; a second Ctrl-C exits at once. SIGHUP, unless it comes from a
    terminal that closes, starts Lasthop anew in the same process (another version, another Envoy) without an interruption.
    """
    host_port(admin, "--admin")
    if not folder.is_dir():
        raise click.ClickException(f"there is no folder {folder}; create a minimal working one with: lasthop init {folder}")
    if not paths.is_text(str(folder.resolve())):
        raise click.ClickException(f"the path of {folder} is not UTF-8; rename it")
    try:
        with printing(log_format) as printer:
            settings = Settings(default_address=address, access_log=AccessLog(access_log.capitalize()))
            ending = asyncio.run(_run(folder, admin, settings, concurrency, printer, handover=handover, replace=replace))
    except* (EnvoyNotFound, FilesError, RunDirLocked, AdminUnusable) as group:
        raise first_error(group) from None
    if ending is Ending.AGAIN:
        start_anew()


async def _run(
    folder: Path,
    admin: str,
    settings: Settings,
    concurrency: int | None,
    printer: AccessLogPrinter,
    *,
    handover: int,
    replace: bool,
) -> Ending:
    envoy = find_envoy()
    run_dir = paths.claim(paths.runtime_root(), folder)
    state = paths.claim(paths.state_root(), folder)
    # Before anything is read that the other one may still write.
    if replace and not await asyncio.to_thread(local.take_over, run_dir, TAKE_OVER_SECONDS):
        raise click.ClickException(f"the Lasthop that runs on {folder} (pid {local.holder(run_dir)}) does not end")
    source = FilesSource(folder, state, target.allowed_files(), FolderProgress(logs.get()))

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
        who=source.author,
    )
    view = ControllerView(runtime, source.locate, f"folder {folder.absolute()}")
    endings = Endings(runtime, handover)
    # Locked first: a second gateway on the same folder must not remove the sockets of the first.
    with _locked(run_dir, folder):
        endings.listen(asyncio.get_running_loop())
        taken(run_dir)
        local.describe(
            run_dir,
            {
                "folder": paths.absolute(folder),
                "pid": os.getpid(),
                "admin": admin,
                "started": time.time(),
                "version": version("lasthop"),
                "envoy": ".".join(map(str, envoy.version)),
            },
        )
        async with serving(view, admin, run_dir / paths.ADMIN_SOCKET):
            runtime.controller.log.info("running", folder=str(folder), admin=f"http://{admin}", pid=os.getpid())
            async with asyncio.TaskGroup() as tasks:
                beside = [
                    tasks.create_task(work) for work in (tell_systemd(runtime), endings.run(), _tell_others(runtime, source))
                ]
                await runtime.run()
                for task in beside:
                    task.cancel()
        if endings.ending is Ending.DRAINED:
            local.clear(run_dir)
        else:
            await endings.leave(run_dir)
    return endings.ending


async def _tell_others(runtime: HostRuntime, source: FilesSource) -> None:
    """Logs once which objects of the folder are not ours."""
    await runtime.controller.loaded.wait()
    if others := source.others:
        runtime.controller.log.info("some objects are not read, as no gateway needs them", kinds=dict(sorted(others.items())))


@contextlib.contextmanager
def _locked(run_dir: Path, folder: Path) -> Iterator[None]:
    directory = ProxyDirectory(run_dir)
    try:
        with directory.locked():
            yield
    except RunDirLocked as error:
        raise click.ClickException(
            f"a gateway runs on {folder} already (pid {error.pid}); take over from it, without an interruption, with: "
            f"lasthop run {folder} --replace; or end it with: lasthop stop {folder}"
        ) from None
