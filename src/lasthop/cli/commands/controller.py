"""`lasthop controller`: the control plane in a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Final

import click

from lasthop.base.api.addresses import split_port, with_port
from lasthop.cli.args import long_running, paths
from lasthop.cli.args.long_running import first_error, on_signals
from lasthop.cli.args.values import host_port, ip_address
from lasthop.cli.render.access_log import AccessLogPrinter, printing
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.config import load
from lasthop.edge.kubernetes.errors import ConfigError
from lasthop.edge.proxy.binary import EnvoyNotFound, find_envoy
from lasthop.edge.proxy.directory import ProxyDirectory, RunDirLocked
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.run.cluster import ClusterRuntime
from lasthop.run.cluster_host import ClusterHostRuntime
from lasthop.run.infra.kubernetes.desired import Site
from lasthop.web.app import AdminUnusable, serving
from lasthop.web.controller_view import ControllerView
from lasthop.web.reviews import Reviews
from lasthop.web.webhook import serving as judging

FROM_CONTROLLER: Final = "Tried from the controller, with its system store; a proxy may reach other addresses and has its own."


@click.command("controller")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The cluster.  [default: as kubectl, or the pod's own]")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--image", default="lasthop", show_default=True, help="Image of the proxies, which is also the controller's.")
@click.option(
    "--infrastructure",
    type=click.Choice(("deployment", "process")),
    default="deployment",
    show_default=True,
    help="Run proxies as Deployments in the cluster, or as processes on this host.",
)
@click.option(
    "--xds-address", metavar="HOST:PORT", help="Address at which proxies reach this controller.  [required for deployment]"
)
@click.option(
    "--xds-listen", default="0.0.0.0:18000", show_default=True, metavar="HOST:PORT", help="Address to listen on for proxies."
)
@click.option(
    "--address",
    default="0.0.0.0",
    show_default=True,
    metavar="IP",
    callback=ip_address,
    help="With process: IP address that Gateways without spec.addresses bind to.",
)
@click.option("--namespaces", default="", metavar="A,B", help="Watch only these namespaces.  [default: all]")
@click.option("--namespace", help="Namespace of the Lease and the CA.  [default: $POD_NAMESPACE, else lasthop-system]")
@click.option("--admin", default="0.0.0.0:19000", show_default=True, metavar="HOST:PORT", help="Health, metrics, status.")
@click.option(
    "--webhook",
    default="",
    metavar="HOST:PORT",
    help="Serve the validating webhook at this address; it judges edits before they are stored.  [default: not]",
)
@long_running.options
def command(
    kubeconfig: Path | None,
    context: str | None,
    image: str,
    infrastructure: str,
    xds_address: str | None,
    xds_listen: str,
    address: str,
    namespaces: str,
    namespace: str | None,
    admin: str,
    webhook: str,
    log_format: str,
) -> None:
    """Run the control plane of a cluster: it creates a Deployment of proxies for each Gateway and writes status.

    It usually runs as a Deployment that `lasthop install` creates. All replicas serve proxies; only the one that holds the
    Lease writes to the cluster.

    With --infrastructure=process each Gateway is an Envoy on this host, which binds the Gateway's own addresses and ports:
    for single-node clusters and for experiments. Pods must be reachable from this host. Failed requests are written to
    standard output, as by `lasthop run`.

    \b
    Examples, from outside the cluster:
      lasthop controller --context kind --xds-address 172.18.0.1:18000
      lasthop controller --context kind --infrastructure=process --address 192.0.2.10
    """
    site = _site(image, xds_address) if infrastructure == "deployment" else None
    host_port(admin, "--admin")
    host_port(xds_listen, "--xds-listen")
    if webhook and site is None:
        raise click.BadParameter("the webhook needs --infrastructure=deployment", param_hint="--webhook")
    if webhook:
        host_port(webhook, "--webhook")
    watched = tuple(name for name in namespaces.split(",") if name)
    own_namespace = namespace or os.environ.get("POD_NAMESPACE") or "lasthop-system"
    try:
        with printing(log_format) as printer:
            asyncio.run(_run(kubeconfig, context, site, xds_listen, address, own_namespace, watched, admin, webhook, printer))
    except* (ConfigError, AdminUnusable, EnvoyNotFound, RunDirLocked) as group:
        raise first_error(group) from None


async def _run(
    kubeconfig: Path | None,
    context: str | None,
    site: Site | None,
    xds_listen: str,
    address: str,
    namespace: str,
    namespaces: tuple[str, ...],
    admin: str,
    webhook: str,
    printer: AccessLogPrinter,
) -> None:
    """Runs the controller until a signal stops it. `site` describes proxies in the cluster; None: they run on this host."""
    access = await asyncio.to_thread(load, str(kubeconfig) if kubeconfig else None, context)
    run_dir = paths.private(paths.runtime_root() / "controller")
    async with Client(access) as client:
        identity = os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"
        runtime: ClusterRuntime | ClusterHostRuntime
        held: contextlib.AbstractContextManager[None] = contextlib.nullcontext()

        def failed(entry: AccessLogEntry) -> None:
            printer(entry)
            view.failed(entry)

        if site is None:
            runtime = ClusterHostRuntime(
                client,
                find_envoy(),
                run_dir,
                identity=identity,
                namespace=namespace,
                address=address,
                namespaces=namespaces,
                entry=failed,
            )
            held = ProxyDirectory(run_dir).locked()
        else:
            runtime = ClusterRuntime(
                client,
                site,
                identity=identity,
                namespace=namespace,
                xds_listen=xds_listen,
                own_address=_own_address(site, xds_listen),
                namespaces=namespaces,
                webhook=bool(webhook),
            )
        on_signals(runtime.stop)
        view = ControllerView(runtime, where=access.name, probe_note="" if site is None else FROM_CONTROLLER)
        with held:
            async with serving(view, admin, run_dir / paths.ADMIN_SOCKET), _judging(runtime, webhook, namespaces):
                runtime.controller.log.info("running", cluster=access.name, admin=admin)
                await runtime.run()


def _judging(
    runtime: ClusterRuntime | ClusterHostRuntime, address: str, namespaces: tuple[str, ...]
) -> contextlib.AbstractAsyncContextManager[None]:
    if not address or not isinstance(runtime, ClusterRuntime) or runtime.rehearsal is None:
        return contextlib.nullcontext()
    reviews = Reviews(runtime.rehearsal, runtime.controller.engine.graph, namespaces)
    return judging(reviews, address, runtime.certificate, runtime.certified)


def _site(image: str, xds_address: str | None) -> Site:
    if not xds_address:
        raise click.UsageError("--xds-address is required, unless the proxies run on this host (--infrastructure=process)")
    return Site(image, *host_port(xds_address, "--xds-address"))


def _own_address(site: Site, xds_listen: str) -> str:
    """Returns the address for other replicas: the Pod's; outside a Pod there is only one replica."""
    ip = os.environ.get("POD_IP")
    if not ip:
        return site.xds_address
    return with_port(ip, split_port(xds_listen)[1])
