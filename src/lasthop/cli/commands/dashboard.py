"""`lasthop dashboard`: opens the page of a running gateway, or of the controller of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lasthop.cli.args import target
from lasthop.cli.args.target import ClusterOptions
from lasthop.cli.render.terminal import note
from lasthop.cli.views.admin_socket import AdminSocketView

if TYPE_CHECKING:
    from lasthop.kubernetes.client import Client
    from lasthop.kubernetes.errors import ApiError

NAMESPACE: Final = "lasthop-system"
LABEL: Final = "app.kubernetes.io/name=lasthop-controller"
PORT: Final = 19000
KNOWN: Final = 2.0
"""Seconds for which the leader is not looked up again."""


@click.command("dashboard")
@target.running_folder
@target.admin
@click.option("--context", metavar="NAME", help="The controller in the cluster of this kubeconfig context.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE", help="The cluster of this kubeconfig.")
@click.option("-n", "--namespace", default=NAMESPACE, show_default=True, metavar="NS", help="Where the controller runs.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Local port for a cluster.  [default: a free one]")
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
def command(
    folder: Path | None, context: str | None, kubeconfig: Path | None, namespace: str, port: int, no_open: bool
) -> None:
    """Open the page that shows every backend connection: what happened on it, and why.

    For the gateway that runs on this machine it prints the address, opens it and exits. For a cluster it forwards a local port
    to the controller that leads, with your rights (get and create on pods/portforward), until Ctrl-C. The port is open to this
    machine only, and to every user of it.

    \b
    Examples:
      lasthop dashboard
      lasthop dashboard --context prod --port 19000
      lasthop dashboard --context prod --no-open
    """
    cluster = ClusterOptions(kubeconfig, context)
    if socket := target.admin_socket(folder, cluster):
        show(local_url(AdminSocketView(socket).ask("/api/about")["admin"]), browser=not no_open)
        return
    from lasthop.kubernetes.client import Client
    from lasthop.kubernetes.config import load
    from lasthop.kubernetes.errors import ConfigError

    async def run() -> None:
        access = await asyncio.to_thread(load, str(kubeconfig) if kubeconfig else None, context)
        note(f"Forwarding to the cluster of {access.name}")
        async with Client(access) as client:
            await forward(client, namespace, port, browser=not no_open)

    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(run())
        except ConfigError as error:
            raise click.ClickException(str(error)) from None


def local_url(admin: str) -> str:
    """Returns the address of the page for a browser on this machine, of what `--admin` binds."""
    host, _, port = admin.rpartition(":")
    local = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "::": "[::1]"}.get(host, host)
    return f"http://{local}:{port}/"


def show(url: str, *, browser: bool) -> None:
    click.echo(url)
    if browser:
        webbrowser.open(url)


async def forward(client: Client, namespace: str, port: int, *, browser: bool) -> None:
    """Forwards until it is cancelled. Raises in words if there is nothing to forward to."""
    from lasthop.kubernetes.errors import ApiError
    from lasthop.kubernetes.port_forward import forwarding

    leader = Leader(client, namespace)
    try:
        _, name, _ = await leader.find()
    except ApiError as error:
        raise click.ClickException(in_words(error, namespace)) from None
    note(f"Pod {namespace}/{name} leads; Ctrl-C ends the forwarding")
    told: set[str] = set()

    def on_error(error: ApiError) -> None:
        leader.forget()
        if (words := in_words(error, namespace)) not in told:  # a page asks each second
            told.add(words)
            note(words)

    try:
        async with forwarding(client, leader.find, on_error, port) as local:
            show(f"http://127.0.0.1:{local}/", browser=browser)
            await asyncio.Event().wait()
    except OSError as error:
        raise click.ClickException(f"port {port} of this machine cannot be used: {error.strerror or error}") from None


class Leader:
    """Finds the Pod of the controller that holds the Lease: the only one that knows what all proxies have seen."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._found: tuple[str, str, int] | None = None
        self._until = 0.0

    def forget(self) -> None:
        self._found = None

    async def find(self) -> tuple[str, str, int]:
        """Returns namespace and name of the Pod and its admin port. Raises `ApiError`."""
        if self._found is None or time.monotonic() > self._until:
            pod = await self._pod()
            self._found = (self._namespace, pod["metadata"]["name"], _admin_port(pod))
            self._until = time.monotonic() + KNOWN
        return self._found

    async def _pod(self) -> dict[str, Any]:
        from lasthop.kubernetes.client import path_of
        from lasthop.kubernetes.errors import ApiError
        from lasthop.sinks.kubernetes.status_updater import LEASE

        path = path_of("coordination.k8s.io", "v1", "leases", self._namespace, LEASE)
        try:
            name = ((await self._client.get(path)).get("spec") or {}).get("holderIdentity") or ""
        except ApiError as error:
            if not (error.denied or error.not_found):
                raise
            name = ""
        if name:
            try:
                return await self._client.get(path_of("", "v1", "pods", self._namespace, name))
            except ApiError as error:
                if not (error.denied or error.not_found):
                    raise
                if error.denied:
                    return {"metadata": {"name": name}}
        found = (await self._client.get(path_of("", "v1", "pods", self._namespace), {"labelSelector": LABEL})).get(
            "items"
        ) or []
        ready = [pod for pod in found if _is_ready(pod)]
        if not ready:
            raise ApiError(404, "NotFound", f"no Pod with the label {LABEL} is ready")
        return dict(ready[0])


def _admin_port(pod: dict[str, Any]) -> int:
    containers = (pod.get("spec") or {}).get("containers") or []
    ports = (port for container in containers for port in container.get("ports") or [])
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "admin"), PORT)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def in_words(error: ApiError, namespace: str) -> str:
    match error.status:
        case 401:
            return "the API server refuses your credentials; log in again, or choose another --context"
        case 403:
            return (
                f"you may not forward ports of Pods in namespace {namespace}: {error.message}; ask for get and create on "
                "pods/portforward there (RBAC)"
            )
        case 404:
            return (
                f"no controller of Lasthop runs in namespace {namespace}: {error.message}; name another with --namespace, or "
                "install it with: lasthop install"
            )
        case 0:
            return f"no connection to the controller: {error.message}"
        case _:
            return f"the API server answers {error}"
