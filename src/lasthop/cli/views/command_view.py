"""Finds the view that a command's arguments name, and queries it: a command is a target, a query and a renderer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from lasthop.base.api.documents import Json
from lasthop.cli.args.target import CLUSTER, ClusterOptions, admin_socket, gateway_named, require_namespace

if TYPE_CHECKING:  # `lasthop status` starts quickly because it loads none of these
    from lasthop.base.api.meta import Key
    from lasthop.edge.probe.result import ProbeResult
    from lasthop.engine.memory.record import Record
    from lasthop.engine.outputs.audit.audit import Audit
    from lasthop.engine.plan.finding import Finding
    from lasthop.engine.plan.request import Request

T = TypeVar("T")


class Size(NamedTuple):
    objects: int
    files: int | None = None
    """None: they do not come from files."""


class View(Protocol):
    """Answers questions about Gateways, routes, policies and their backends, of a folder of YAML files, a running gateway
    (over its admin socket) or a cluster."""

    where: str
    """The source of the answers: a path, `the running gateway`, `the cluster`, `namespace shop`."""
    namespace: str
    """What the answer is limited to; empty: everything."""
    observes: bool
    """Whether it has observations of connections."""

    async def origin(self) -> str:
        """Returns `where` for a reader on another machine: an absolute path, or the address of an API server."""

    async def record(self, controller_namespace: str) -> Record | None:
        """Returns the record of changes; None: there is none, or it cannot be read. Notes why."""

    async def size(self) -> Size:
        """Returns how much was looked at."""

    def unseen(self, finding: Finding) -> Finding | None:
        """Returns the missing permission that may be the only reason for a finding."""

    async def namespaces(self) -> Collection[str]:
        """Returns the namespaces that exist; empty if they cannot be listed."""

    async def names(self, kind: str) -> Collection[tuple[str, str]]:
        """Returns (namespace, name) of every object of a kind."""

    async def findings(self) -> list[Finding]:
        """Returns all findings."""

    def broken_objects(self, findings: list[Finding]) -> dict[Key, str]:
        """Returns the objects in files that are not applied, as far as they parse, with the file as findings name it."""

    async def problems(self) -> tuple[str, ...]:
        """Returns why answers may be incomplete, a line each: input that is not applied, or that cannot be read."""

    async def hidden(self) -> tuple[str, ...]:
        """Returns why hops may be missing from the audit altogether, a line each."""

    async def audit(self) -> Audit:
        """Returns how every backend that a route refers to is verified, and the certificates that will expire."""

    async def explain(self, key: Key) -> Json | None:
        """Returns what applies to an object and why not; None if it does not exist."""

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        """Returns what becomes of a request at each Gateway that has its port, or (`gateway`) at that one."""

    async def probe(self, key: Key, address: str) -> ProbeResult:
        """Connects to the backends of a policy, Service, XBackend or route, or (`address`) to HOST:PORT in their place."""


class StatusView(Protocol):
    """Objects with the status that a controller has given them."""

    where: str
    home: str
    """The namespace of names that are typed without one, if others are looked at as well; empty: any."""

    async def namespaces(self) -> Collection[str]: ...

    async def objects(self, *kinds: str) -> list[Json]:
        """Returns the objects of these kinds, or all that have a status."""

    async def problems(self) -> tuple[str, ...]: ...

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Calls `changed` whenever objects may have changed, until it is interrupted."""


def ask(
    folder: Path | None,
    cluster: ClusterOptions,
    question: Callable[[View], Coroutine[Any, Any, T]],
    *,
    object_named: bool = False,
    files: Sequence[Path] = (),
) -> T:
    """Asks the folder (or single `files`), the gateway that runs on this machine or the cluster, whichever is meant (see
    `args/target.py`). Raises if the namespace does not exist, unless an object in it is named, whose absence is a better
    message."""

    async def ask_view(view: View, place: str) -> T:
        if cluster.namespace and not object_named:
            require_namespace(cluster.namespace, await view.namespaces(), place)
        return await question(view)

    if (folder or files) and not cluster.named and not gateway_named():
        import asyncio

        from lasthop.cli.views.folder import FolderView
        from lasthop.cli.views.selection import selected

        with selected(folder, files) as chosen:
            view = FolderView(chosen.path, cluster.namespace or "", chosen)
            return asyncio.run(ask_view(view, chosen.where))
    folder = folder or next(iter(files), None)
    if socket := admin_socket(folder, cluster):
        from lasthop.cli.views.admin_socket import AdminSocketView

        running = AdminSocketView(socket, cluster.namespace or "")
        return without_loop(ask_view(running, running.where))
    from lasthop.cli.views import cluster as clusters
    from lasthop.edge.kubernetes.client import Client

    async def ask_cluster(client: Client, namespace: str) -> T:
        view = await clusters.ClusterView.load(client, namespace)
        found = await ask_view(view, CLUSTER)
        view.note_unseen()
        return found

    return clusters.run(cluster, ask_cluster)


def ask_status(folder: Path | None, cluster: ClusterOptions, question: Callable[[StatusView], Coroutine[Any, Any, T]]) -> T:
    """Asks the gateway that runs on this machine (on `folder`, if that is given), or the cluster."""
    if socket := admin_socket(folder, cluster):
        from lasthop.cli.views.admin_socket import AdminSocketView

        return without_loop(question(AdminSocketView(socket)))
    from lasthop.cli.views import cluster as clusters
    from lasthop.cli.views.cluster_status import ClusterStatusView

    return clusters.run(cluster, lambda client, namespace: question(ClusterStatusView(client, namespace)))


def without_loop(question: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits: asyncio takes longer to import than a running gateway to answer."""
    try:
        question.send(None)
    except StopIteration as answer:
        found: T = answer.value
        return found
    raise RuntimeError("it waits for an event loop")
