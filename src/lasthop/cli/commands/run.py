"""`lasthop run DIR`: runs a gateway on a folder of YAML files; `lasthop run --to URL`: for backends, without a folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from lasthop.base.api.addresses import with_port
from lasthop.base.text.logs import LOG
from lasthop.cli.args import backends, local, long_running, paths, target
from lasthop.cli.args.long_running import first_error
from lasthop.cli.args.values import host_port, ip_address, program
from lasthop.cli.render.access_log import AccessLogPrinter, printing
from lasthop.cli.render.init_templates import Listen, manifest
from lasthop.cli.render.progress import FolderProgress
from lasthop.edge.proxy.binary import Envoy, EnvoyNotFound, find_envoy
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirLocked
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.handover import remove_handover
from lasthop.edge.sources.files.folder import FilesError
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.engine import Engine
from lasthop.engine.plan.profile import AccessLog
from lasthop.engine.resolve.settings import Settings
from lasthop.run.endings import Ending, Endings, start_anew, tell_systemd
from lasthop.run.host import HostRuntime
from lasthop.run.infra import memory, ports
from lasthop.web.app import AdminUnusable, serving
from lasthop.web.controller_view import ControllerView

ADMIN: Final = "127.0.0.1:19000"
LOOPBACK: Final = "127.0.0.1"
ADMIN_PORTS: Final = 20
"""Ports tried for the admin page of a gateway without a folder."""
TAKE_OVER_SECONDS: Final = 30.0
"""Seconds for the replaced Lasthop to end; it may have to wait for a proxy whose Gateway was just deleted."""


@click.command("run", cls=backends.GroupedCommand)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
@backends.options("--to")
@click.option("--print", "printed", is_flag=True, help="Print the objects of --to as YAML, without running them.")
@click.option("--admin", default=ADMIN, show_default=True, metavar="HOST:PORT", help="Address of the admin page.")
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
    help="Requests to log, unless a GatewayProfile sets spec.proxy.accessLog.",
)
@click.option(
    "--handover",
    type=click.IntRange(0, 3600),
    default=0,
    metavar="SECONDS",
    envvar="LASTHOP_HANDOVER",
    help="On SIGTERM, leave the proxies serving this long for the next `lasthop run`.  [default: drain them]",
)
@click.option("--replace", is_flag=True, help="Replace the Lasthop that runs on DIR; its proxies serve on.")
@long_running.options
@click.pass_context
def command(
    context: click.Context,
    folder: Path | None,
    listen: str,
    printed: bool,
    admin: str,
    address: str,
    concurrency: int | None,
    access_log: str,
    handover: int,
    replace: bool,
    log_format: str,
) -> None:
    """Run a gateway on the Gateway API objects in DIR, and watch DIR for edits; or, with --to, one for a backend, without a
    folder.

    With --to, Lasthop connects to the backend first. The gateway starts if it can verify the backend: by the CAs that this
    system trusts, or as --ca, --pin and --hostname require. Otherwise it shows the backend's certificate and the options to
    add; it trusts nothing by itself. Options after a --to belong to that backend, those before the first one to all. --path
    and --host choose its requests; backends with the same ones share them. Plaintext must be explicit: --to http://HOST:PORT
    --plaintext. The objects last as long as the gateway; --print shows them, and `lasthop init DIR` with the same options
    writes them to a folder.

    \b
    Examples:
      lasthop run --to https://api.example.com
      lasthop run --to https://127.0.0.1:8443 --ca ca.pem
      lasthop run --to https://10.0.0.7:8443 --ca ca.pem --hostname api.internal --listen :8080
      lasthop run --to https://a:8443 --ca a.pem --to https://b:8443 --path /api --ca b.pem

    DIR holds the YAML that you would apply to a cluster: Gateways, HTTPRoutes, BackendTLSPolicies, Services with
    EndpointSlices, ConfigMaps, Secrets; subfolders are included. Edits take effect as soon as they are saved. An invalid file
    is reported with its line, and its last valid content stays in force.

    \b
    Examples:
      lasthop run examples/quickstart
      lasthop status
      lasthop run examples/quickstart --replace     in another terminal, or with another version: no request fails

    Failed requests (status 500 and above) go to standard output, with the reason unless the error came from the backend
    itself. A terminal shows one line each and counts repetitions; elsewhere the format is JSON. The log goes to standard
    error. Ctrl-C and SIGTERM drain the proxies and exit; a second Ctrl-C exits at once. SIGHUP, unless it comes from a
    terminal that closes, restarts Lasthop in the same process, for another version of Lasthop or Envoy, without an
    interruption.
    """
    host_port(admin, "--admin")
    to_backends = backends.from_arguments(context)
    if folder and to_backends:
        raise click.UsageError(f"both {folder} and --to are given; remove one of them")
    if printed and not to_backends:
        raise click.UsageError("--print shows the objects of --to URL, which is missing")
    if to_backends:
        place = _of_backends(context, to_backends, Listen(*backends.listen_address(listen)), printed=printed)
        chosen = context.get_parameter_source("admin") is not ParameterSource.DEFAULT
        admin_address = AdminAddress(admin) if chosen else _free_admin(admin)
    else:
        place, admin_address = _of_folder(folder), AdminAddress(admin)
    try:
        with printing(log_format) as printer:
            settings = Settings(default_address=address, access_log=AccessLog(access_log.capitalize()))
            ending = asyncio.run(
                _run(place, admin_address, settings, concurrency, printer, handover=handover, replace=replace)
            )
    except* (EnvoyNotFound, FilesError, RunDirLocked, AdminUnusable) as group:
        raise first_error(group) from None
    if ending is Ending.AGAIN:
        start_anew()


class Place(NamedTuple):
    """The files of a gateway."""

    folder: Path
    """The folder of its objects."""
    run_dir: Path
    state: Path
    command: str
    """The command that runs it again."""
    objects: str = ""
    """Written to the folder; empty: the folder is the user's, or this process wrote it before it started anew."""
    to: tuple[str, ...] = ()
    listen: Listen | None = None
    """The address for clients, of a gateway without a folder."""


def _of_folder(folder: Path | None) -> Place:
    if folder is None:
        message = "no folder or backend is given; use: lasthop run DIR, or lasthop run --to https://HOST:PORT"
        raise click.UsageError(message)
    if not folder.is_dir():
        if url := backends.url_for_folder(str(folder)):
            raise click.UsageError(f"{url} is a backend, not a folder; write: {program()} run --to {url}")
        raise click.ClickException(f"folder {folder} does not exist; create a minimal working one with: lasthop init {folder}")
    if not paths.is_text(str(folder.resolve())):
        raise click.ClickException(f"the path of {folder} is not UTF-8; rename it")
    run_dir = paths.claim(paths.runtime_root(), folder)
    return Place(folder, run_dir, paths.claim(paths.state_root(), folder), f"{program()} run {folder}")


def _of_backends(context: click.Context, to_backends: tuple[backends.Backend, ...], listen: Listen, *, printed: bool) -> Place:
    """Tries the backends. Ends the command if one cannot be used, or with --print."""
    command, to = backends.command_line(context, {}), tuple(backend.url for backend in to_backends)
    description = local.about(paths.without_folder(listen.address, listen.port))
    if not (description or printed):
        _require_port(listen)
    # Restarted by SIGHUP: the proxies serve on, whether or not the backends answer right now.
    again = not printed and (description.get("pid"), description.get("command")) == (os.getpid(), command)
    objects = "" if again else _verified_manifest(context, to_backends, listen)
    if printed:
        click.echo(objects, nl=False)
        context.exit()
    run_dir = paths.private(paths.without_folder(listen.address, listen.port))
    return Place(run_dir / paths.OBJECTS, run_dir, run_dir / "state", command, objects, to, listen)


def _require_port(listen: Listen) -> None:
    """Raises if another program has the port; without a folder, an option chooses another one."""
    problem = ports.problem(listen.address, listen.port)
    if problem is None:
        return
    free = _free_listen(listen)
    raise click.ClickException(f"{problem.message}; for example: --listen {free}" if free else problem.message)


def _free_listen(listen: Listen) -> str:
    """Returns an address that could be listened on instead; empty if none is found."""
    places = ((address, port) for address in (listen.address, LOOPBACK) for port in range(8080, 8080 + ADMIN_PORTS))
    return next((with_port(*place) for place in places if not ports.problem(*place)), "")


def _verified_manifest(context: click.Context, to_backends: tuple[backends.Backend, ...], listen: Listen) -> str:
    from lasthop.cli.render.look_report import verified

    return manifest(listen, verified(to_backends, context))


class AdminAddress(NamedTuple):
    address: str
    listening: socket.socket | None = None
    """Its socket, if it is open already."""


def _free_admin(address: str) -> AdminAddress:
    """Opens the address, or the next one whose port is free. It stays open, so that no other gateway takes it meanwhile."""
    host, port = host_port(address, "--admin")
    for number in range(port, port + ADMIN_PORTS):
        with contextlib.suppress(OSError):
            return AdminAddress(with_port(host, number), socket.create_server((host, number)))
    return AdminAddress(address)


async def _run(
    place: Place,
    admin: AdminAddress,
    settings: Settings,
    concurrency: int | None,
    printer: AccessLogPrinter,
    *,
    handover: int,
    replace: bool,
) -> Ending:
    envoy = find_envoy()
    if replace and not await asyncio.to_thread(local.take_over, place.run_dir, TAKE_OVER_SECONDS):
        raise click.ClickException(f"the Lasthop that runs on {place.folder} (pid {local.holder(place.run_dir)}) does not end")
    # The lock comes first, because another Lasthop may still write or remove the files below.
    with _locked(place):
        return await _run_locked(place, admin, settings, concurrency, printer, envoy, handover)


async def _run_locked(
    place: Place,
    admin: AdminAddress,
    settings: Settings,
    concurrency: int | None,
    printer: AccessLogPrinter,
    envoy: Envoy,
    handover: int,
) -> Ending:
    folder, run_dir, state = place.folder, place.run_dir, place.state
    if place.to:
        paths.claim_without_folder(run_dir)
    if place.objects:
        _write(folder / "objects.yaml", place.objects)
    source = FilesSource(folder, state, target.allowed_files(), FolderProgress(LOG))

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
        locate=source.locate,
    )
    view = ControllerView(runtime, source.locate, f"folder {folder.absolute()}")
    endings = Endings(runtime, handover)
    endings.listen(asyncio.get_running_loop())
    remove_handover(run_dir)
    local.describe(
        run_dir,
        {
            "folder": paths.absolute(folder),
            "pid": os.getpid(),
            "admin": admin.address,
            "started": time.time(),
            "version": version("lasthop"),
            "envoy": ".".join(map(str, envoy.version)),
            "command": place.command,
            "to": place.to,
        },
    )
    async with serving(view, admin.address, run_dir / paths.ADMIN_SOCKET, admin.listening):
        runtime.controller.log.info("running", folder=str(folder), admin=f"http://{admin.address}", pid=os.getpid())
        async with asyncio.TaskGroup() as tasks:
            side_tasks = [
                tasks.create_task(work) for work in (tell_systemd(runtime), endings.run(), _log_ignored(runtime, source))
            ]
            await runtime.run()
            for task in side_tasks:
                task.cancel()
    if endings.ending is Ending.DRAINED:
        local.clear(run_dir)
    else:
        await endings.leave(run_dir)
    return endings.ending


async def _log_ignored(runtime: HostRuntime, source: FilesSource) -> None:
    """Logs once the kinds in the folder that Lasthop does not read."""
    await runtime.controller.loaded.wait()
    if ignored := source.others:
        runtime.controller.log.info(
            "some objects are ignored, because no gateway needs them", kinds=dict(sorted(ignored.items()))
        )


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


@contextlib.contextmanager
def _locked(place: Place) -> Iterator[None]:
    directory = ProxyDirectory(place.run_dir)
    try:
        with directory.locked():
            yield
    except RunDirLocked as error:
        where, free = f"runs on {place.folder}", ""
        if place.listen:
            where, free = f"serves {with_port(place.listen.address, place.listen.port)}", _free_listen(place.listen)
        beside = f"run another beside it: add --listen {free}; " if free else ""
        raise click.ClickException(
            f"a gateway {where} already (pid {error.pid}); {beside}take over from it, without an interruption, with: "
            f"{place.command} --replace; or end it with: {program()} stop {place.folder}"
        ) from None
