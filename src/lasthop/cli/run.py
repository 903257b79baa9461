"""`lasthop run DIR`: a gateway on a folder of YAML files."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from lasthop import logs
from lasthop.api.kinds import KINDS
from lasthop.api.meta import Key
from lasthop.cli import places
from lasthop.controller import Controller
from lasthop.outputs.audit.hops import HopReport
from lasthop.outputs.explain.tree import tree
from lasthop.plan.finding import Finding
from lasthop.proxy.entry import Entry
from lasthop.proxy.find import EnvoyNotFound, find_envoy
from lasthop.proxy.folder import Folder, FolderHeld
from lasthop.proxy.process import Proxy
from lasthop.resolve.settings import Settings
from lasthop.sources.files.errors import FilesError
from lasthop.sources.files.source import FilesSource
from lasthop.web.app import AdminUnusable, serving
from lasthop.xds.server import Traffic


class _View:
    """The controller as the admin address shows it."""

    def __init__(self, controller: Controller, source: FilesSource) -> None:
        self._controller = controller
        self._source = source

    @property
    def ready(self) -> bool:
        return self._controller.ready

    @property
    def proxies(self) -> Mapping[Key, Proxy]:
        return self._controller.processes.proxies

    @property
    def traffic(self) -> Mapping[str, Traffic]:
        return self._controller.server.traffic

    def hops(self) -> list[HopReport]:
        return self._controller.engine.hops()

    def findings(self) -> list[Finding]:
        return self._controller.findings()

    def objects(self, kind: str | None = None) -> list[dict[str, Any]]:
        book, store = self._controller.book, self._controller.engine.store
        kinds = [kind] if kind in KINDS else ["GatewayClass", "Gateway", "HTTPRoute", "BackendTLSPolicy"]
        documents = (book.document(key) for kind in kinds for key in store.keys(kind))
        return [document for document in documents if document]

    def explain(self, key: Key, *, reads: bool = False) -> dict[str, Any] | None:
        return tree(self._controller.engine.graph, key, self._source.locate, reads=reads)

    def counts(self) -> Mapping[str, int]:
        store = self._controller.engine.store
        return {kind: len(store.keys(kind)) for kind in KINDS}


@click.command("run")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--admin", default="127.0.0.1:19000", show_default=True, metavar="HOST:PORT", help="Where the admin page is.")
@click.option(
    "--address", default="0.0.0.0", show_default=True, metavar="IP", help="What Gateways without spec.addresses bind."
)
@click.option("--concurrency", type=click.IntRange(1), help="Worker threads of each Envoy.  [default: one for each CPU]")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(folder: Path, admin: str, address: str, concurrency: int | None, verbose: bool) -> None:
    """Run a gateway on the Gateway API objects in DIR, watching it for edits.

    DIR holds the YAML that you would give to a cluster: Gateways, HTTPRoutes, BackendTLSPolicies, Services with
    EndpointSlices, ConfigMaps, Secrets; sub-folders are read too. A saved edit takes effect at once. A broken file is
    reported with its line and keeps its last good content.

    \b
    Example:
      lasthop run examples/quickstart
      lasthop status

    Failed requests are written to standard output as JSON, with the reason in words; logs go to standard error. Ctrl-C
    drains the proxies and ends; pressed twice it ends at once.
    """
    logs.configure(verbose=verbose)
    host, _, port = admin.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{admin} is not HOST:PORT", param_hint="--admin")
    try:
        asyncio.run(_run(folder, admin, address, concurrency))
    except* (EnvoyNotFound, FilesError, FolderHeld, AdminUnusable) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise click.ClickException(str(error)) from None


async def _run(folder: Path, admin: str, address: str, concurrency: int | None) -> None:
    envoy = find_envoy()
    run_dir = places.private(places.of_folder(places.runtime_root(), folder))
    state = places.private(places.of_folder(places.state_root(), folder))
    source = FilesSource(folder, state)
    controller = Controller(
        source,
        envoy,
        run_dir,
        settings=Settings(default_address=address),
        entry=_print_entry,
        concurrency=concurrency,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, controller.stop)
    # Held first: a second one on the same folder must not take away the sockets of the one that runs.
    with Folder(run_dir).held():
        async with serving(_View(controller, source), admin, run_dir / places.ADMIN_SOCKET):
            controller.log.info("running", folder=str(folder), admin=f"http://{admin}", pid=os.getpid())
            await controller.run()


def _print_entry(entry: Entry) -> None:
    fields = {name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None}
    sys.stdout.write(msgspec.json.encode(fields).decode() + "\n")
    sys.stdout.flush()
