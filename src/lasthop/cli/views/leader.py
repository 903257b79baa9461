"""Queries the leading controller of a cluster, through the API server with the user's rights, like a port-forward."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import aiohttp
import click

from lasthop.base.api.documents import Json, nested
from lasthop.cli.args.target import ClusterOptions
from lasthop.cli.render.terminal import note
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.config import load
from lasthop.edge.kubernetes.errors import NOT_OPENED, ApiError, ConfigError
from lasthop.edge.kubernetes.port_forward import forwarding
from lasthop.edge.sinks.kubernetes.status_updater import LEASE

LABEL: Final = "app.kubernetes.io/name=lasthop-controller"
PORT: Final = 19000
KNOWN: Final = 2.0
"""Seconds for which the leader is cached."""
TIMEOUT: Final = 10.0
"""Timeout of a request, in seconds."""

Ask = Callable[[str], Awaitable[Any]]
"""A function that returns the JSON at a path of the admin API."""


def run(cluster: ClusterOptions, work: Callable[[Client], Awaitable[None]]) -> None:
    """Runs `work` with a client until it ends, or Ctrl-C. Prints the name of the cluster; converts exceptions to CLI
    errors."""

    async def with_client() -> None:
        access = await asyncio.to_thread(load, str(cluster.kubeconfig) if cluster.kubeconfig else None, cluster.context)
        note(f"Forwarding to the cluster of {access.name}")
        async with Client(access) as client:
            await work(client)

    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(with_client())
        except ConfigError as error:
            raise click.ClickException(str(error)) from None


@contextlib.asynccontextmanager
async def asking(client: Client, namespace: str) -> AsyncIterator[Ask]:
    """Yields a function that queries the current leader in this namespace; its errors are CLI errors."""
    leader, errors = Leader(client, namespace), list[ApiError]()

    def failed(error: ApiError) -> None:
        leader.forget()
        errors.append(error)

    async def ask(path: str) -> Any:
        errors.clear()
        try:
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                if answer.status == 200:
                    return await answer.json()
                raise click.ClickException((await answer.text()).strip() or f"the controller answers {answer.status}")
        except (aiohttp.ClientError, TimeoutError) as error:
            why = in_words(errors[0], namespace) if errors else f"no connection to the controller: {error or 'timeout'}"
            raise click.ClickException(why) from None

    try:
        await leader.find()
    except ApiError as error:
        raise click.ClickException(in_words(error, namespace)) from None
    # One connection per query, because the next one may go to another leader.
    connector, timeout = aiohttp.TCPConnector(force_close=True), aiohttp.ClientTimeout(TIMEOUT)
    async with (
        forwarding(client, leader.find, failed) as port,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
    ):
        yield ask


class Leader:
    """Finds the controller's Pod that holds the Lease: only this one has the reports of all proxies."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._pod_port: tuple[str, str, int] | None = None
        self._until = 0.0

    def forget(self) -> None:
        self._pod_port = None

    async def find(self) -> tuple[str, str, int]:
        """Returns namespace and name of the Pod and its admin port. Raises `ApiError`."""
        if self._pod_port is None or time.monotonic() > self._until:
            pod = await self._pod()
            self._pod_port = (self._namespace, pod["metadata"]["name"], _admin_port(pod))
            self._until = time.monotonic() + KNOWN
        return self._pod_port

    async def _pod(self) -> Json:
        name = await self._holder()
        pod = await self._held_by(name) if name else None
        return pod or await self._any_ready()

    async def _holder(self) -> str:
        """Returns the name in the Lease; empty if it has none, or the user may not read it."""
        path = path_of("coordination.k8s.io", "v1", "leases", self._namespace, LEASE)
        try:
            return str(nested(await self._client.get(path), "spec", "holderIdentity") or "")
        except ApiError as error:
            if not (error.denied or error.not_found):
                raise
            return ""

    async def _held_by(self, name: str) -> Json | None:
        """Returns the Pod with that name; only the name if the user may not read Pods."""
        try:
            return await self._client.get(path_of("", "v1", "pods", self._namespace, name))
        except ApiError as error:
            if error.denied:
                return {"metadata": {"name": name}}
            if not error.not_found:
                raise
            return None

    async def _any_ready(self) -> Json:
        listed = await self._client.get(path_of("", "v1", "pods", self._namespace), {"labelSelector": LABEL})
        ready = next((pod for pod in listed.get("items") or () if _is_ready(pod)), None)
        if ready is None:
            raise ApiError(404, "NotFound", f"no Pod with the label {LABEL} is ready")
        return dict(ready)


def _admin_port(pod: Json) -> int:
    containers = nested(pod, "spec", "containers") or []
    ports = (port for container in containers for port in container.get("ports") or [])
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "admin"), PORT)


def _is_ready(pod: Json) -> bool:
    conditions = nested(pod, "status", "conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def in_words(error: ApiError, namespace: str) -> str:
    match error.status:
        case 401:
            return "the API server refuses your credentials; log in again, or choose another --context"
        case 403:
            return (
                f"you may not forward ports of Pods in namespace {namespace}: {error.message}; request get and create on "
                "pods/portforward there (RBAC)"
            )
        case 404 if error.reason != NOT_OPENED:
            return (
                f"no controller of Lasthop runs in namespace {namespace}: {error.message}; name another with --namespace, or "
                "install it with: lasthop install"
            )
        case 0:
            return f"no connection to the controller: {error.message}"
        case _ if error.reason == NOT_OPENED:
            return f"the API server forwards no port to the controller's Pod in namespace {namespace}: {error}"
        case _:
            return f"the API server answers {error}"
