"""Selects the view for a command's arguments and queries it. A command consists of a target, a query and a renderer."""

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
    """None: the objects do not come from files."""


class View(Protocol):
    """Answers questions about Gateways, routes, policies and their backends, of a folder of YAML files, a running gateway
    (over its admin socket) or a cluster."""

    where: str
    """The source of the answers: a path, `the running gateway`, `the cluster`, `namespace shop`."""
    namespace: str
    """The namespace that limits the answer; empty: all."""
    observes: bool
    """Whether the view has observations of connections."""

    async def origin(self) -> str:
        """Returns `where` for a reader on another machine: an absolute path, or the address of an API server."""

    async def record(self, controller_namespace: str) -> Record | None:
        """Returns the record of changes; None: it is missing or unreadable. Prints the reason."""

    async def size(self) -> Size:
        """Returns how many objects were read."""

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
        """Returns the reasons why answers may be incomplete, one line each: unreadable input, or input that is not applied."""

    async def hidden(self) -> tuple[str, ...]:
        """Returns the reasons why hops may be missing from the audit, one line each."""

    async def audit(self) -> Audit:
        """Returns the verification of every backend that a route refers to, and the certificates that expire soon."""

    async def explain(self, key: Key) -> Json | None:
        """Returns which objects apply to an object, and why others do not; None if it does not exist."""

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        """Returns the path of a request through each Gateway with its port, or only through `gateway`."""

    async def probe(self, key: Key, address: str) -> ProbeResult:
        """Connects to the backends of a policy, Service, XBackend or route; with `address`, to HOST:PORT instead."""


class StatusView(Protocol):
    """Reads objects with the status that a controller has written."""

    where: str
    home: str
    """The namespace of names without one, if the view has several namespaces; empty: any."""

    async def namespaces(self) -> Collection[str]: ...

    async def objects(self, *kinds: str) -> list[Json]:
        """Returns the objects of these kinds, or all that have a status."""

    async def problems(self) -> tuple[str, ...]: ...

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Calls `changed` after each possible change of objects, until it is interrupted."""


def ask(
    folder: Path | None,
    cluster: ClusterOptions,
    question: Callable[[View], Coroutine[Any, Any, T]],
    *,
    object_named: bool = False,
    files: Sequence[Path] = (),
) -> T:
    """Queries the selected folder (or `files`), gateway on this machine or cluster (see `args/target.py`). Raises if the
    namespace does not exist, unless the arguments name an object in it: then "not found" is the better message."""

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
        result = await ask_view(view, CLUSTER)
        view.note_unseen()
        return result

    return clusters.run(cluster, ask_cluster)


def ask_status(folder: Path | None, cluster: ClusterOptions, question: Callable[[StatusView], Coroutine[Any, Any, T]]) -> T:
    """Queries the gateway that runs on this machine (on `folder`, if given), or the cluster."""
    if socket := admin_socket(folder, cluster):
        from lasthop.cli.views.admin_socket import AdminSocketView

        return without_loop(question(AdminSocketView(socket)))
    from lasthop.cli.views import cluster as clusters
    from lasthop.cli.views.cluster_status import ClusterStatusView

    return clusters.run(cluster, lambda client, namespace: question(ClusterStatusView(client, namespace)))


def without_loop(question: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never waits, because importing asyncio takes longer than the gateway's answer."""
    try:
        question.send(None)
    except StopIteration as answer:
        result: T = answer.value
        return result
    raise RuntimeError("it waits for an event loop")
