"""`lasthop controller`: the control plane in a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import click

from lasthop import logs
from lasthop.cli import places
from lasthop.cli.view import ControllerView
from lasthop.cluster import ClusterController
from lasthop.infra.kubernetes.wanted import Site
from lasthop.sources.kubernetes.client import Client
from lasthop.sources.kubernetes.config import load
from lasthop.sources.kubernetes.errors import ConfigError
from lasthop.web.app import AdminUnusable, serving


@click.command("controller")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The cluster.  [default: as kubectl, or the pod's own]")
@click.option("--context", help="Of the kubeconfig.")
@click.option("--image", default="lasthop", show_default=True, help="Of the proxies; it is the controller's own.")
@click.option("--xds-address", required=True, metavar="HOST:PORT", help="Where the proxies find this controller.")
@click.option(
    "--xds-listen", default="0.0.0.0:18000", show_default=True, metavar="HOST:PORT", help="Where it listens for them."
)
@click.option("--namespaces", default="", metavar="A,B", help="Watch only these.  [default: all]")
@click.option("--namespace", help="Where Lease and CA are kept.  [default: $POD_NAMESPACE, else lasthop-system]")
@click.option("--admin", default="0.0.0.0:19000", show_default=True, metavar="HOST:PORT", help="Health, metrics, status.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    image: str,
    xds_address: str,
    xds_listen: str,
    namespaces: str,
    namespace: str | None,
    admin: str,
    verbose: bool,
) -> None:
    """Run the control plane of a cluster: Gateways become Deployments of proxies, statuses are written back.

    Usually it runs as a Deployment that `lasthop install` makes. Several replicas serve the proxies together; the one that
    holds the Lease writes.

    \b
    Example, from outside, for a try:
      lasthop controller --context kind --xds-address 172.18.0.1:18000
    """
    logs.configure(verbose=verbose)
    host, _, port = xds_address.rpartition(":")
    if not host or not port.isdigit():
        raise click.BadParameter(f"{xds_address} is not HOST:PORT", param_hint="--xds-address")
    watched = tuple(name for name in namespaces.split(",") if name)
    own = namespace or os.environ.get("POD_NAMESPACE") or "lasthop-system"
    site = Site(image, host.strip("[]"), int(port))
    try:
        asyncio.run(_run(kubeconfig, context, site, xds_listen, own, watched, admin))
    except* (ConfigError, AdminUnusable) as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise click.ClickException(str(error)) from None


async def _run(
    kubeconfig: Path | None,
    context: str | None,
    site: Site,
    xds_listen: str,
    namespace: str,
    namespaces: tuple[str, ...],
    admin: str,
) -> None:
    access = await asyncio.to_thread(load, str(kubeconfig) if kubeconfig else None, context)
    run_dir = places.private(places.runtime_root() / "controller")
    async with Client(access) as client:
        controller = ClusterController(
            client,
            site,
            identity=os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            namespace=namespace,
            xds_listen=xds_listen,
            own_address=_own_address(site, xds_listen),
            namespaces=namespaces,
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, controller.stop)
        view = ControllerView(controller, {}, lambda *_: None)
        async with serving(view, admin, run_dir / places.ADMIN_SOCKET):
            controller.log.info("running", cluster=access.name, admin=admin)
            await controller.run()


def _own_address(site: Site, xds_listen: str) -> str:
    """Where the other replicas reach this one: in a pod its own address, and elsewhere there is only one."""
    ip = os.environ.get("POD_IP")
    if not ip:
        return site.xds_address
    return f"[{ip}]:{xds_listen.rpartition(':')[2]}" if ":" in ip else f"{ip}:{xds_listen.rpartition(':')[2]}"
