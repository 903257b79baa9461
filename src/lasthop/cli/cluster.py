"""A cluster looked at with the rights of whoever asks: what `status`, `check` and `explain` work on. Nothing is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click
import msgspec

from lasthop.api.kinds import GATEWAY_API, KINDS, Kind, document, has_status
from lasthop.api.meta import Key
from lasthop.cli.args.target import CLUSTER, Reach, demand_namespace
from lasthop.cli.folder import let_gateways_run
from lasthop.cli.hidden import Hidden
from lasthop.cli.missing_targets import Services, with_problem
from lasthop.cli.render.terminal import note
from lasthop.engine import Engine
from lasthop.infra.system_store import host_store
from lasthop.kubernetes.client import Client
from lasthop.kubernetes.config import load
from lasthop.kubernetes.errors import ApiError, ConfigError
from lasthop.kubernetes.objects import Read, read_object
from lasthop.plan.finding import Finding
from lasthop.resolve.settings import IN_CLUSTER
from lasthop.sources.kubernetes.reflector import Reflector
from lasthop.sources.kubernetes.snapshot import Listed, look, plain

T = TypeVar("T")
Document = dict[str, Any]
INSTALL_CRDS: Final = (
    "the CRDs of Gateway API are not installed in this cluster; install those of v1.7.0: kubectl apply --server-side -f "
    "https://github.com/kubernetes-sigs/gateway-api/releases/download/v1.7.0/standard-install.yaml"
)


def ask(reach: Reach, work: Callable[[Client, str], Awaitable[T]]) -> T:
    """Runs `work` with a client and the namespace that is meant (empty: all). Says which cluster it is; errors in words."""
    try:
        access = load(str(reach.kubeconfig) if reach.kubeconfig else None, reach.context)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    namespace = "" if reach.everywhere else reach.namespace or access.namespace
    note(f"Reading the cluster of {access.name}, {f'namespace {namespace}' if namespace else 'all namespaces'}")

    async def asked() -> T:
        async with Client(access) as client:
            return await work(client, namespace)

    try:
        return asyncio.run(asked())
    except ApiError as error:
        raise click.ClickException(in_words(error, access.name)) from None


def in_words(error: ApiError, cluster: str) -> str:
    match error.status:
        case 0:
            return f"the API server of {cluster} does not answer: {error.message}; is it up, and is its address right?"
        case 401:
            return f"the API server refuses the credentials of {cluster}; log in again, or choose another --context"
        case 403:
            return f"{cluster} does not let you read this: {error.message}; ask for the right to list it (RBAC)"
        case _:
            return f"the API server of {cluster} answers {error}"


def served(listed: dict[str, Listed]) -> dict[str, Listed]:
    """Raises unless there is anything of Gateway API."""
    if not any(each.kind.group == GATEWAY_API for each in listed.values()):
        raise click.ClickException(INSTALL_CRDS)
    return listed


# --- everything, resolved: for check and explain ---------------------------------------------------------------------


class ClusterObjects:
    """The same resolution as in the controller, as if every Gateway had its proxies."""

    def __init__(self, listed: dict[str, Listed], now: float | None = None) -> None:
        self.hidden = Hidden(listed.values())
        self.source_findings: list[Finding] = []
        self.objects: list[Key] = []
        self.engine = Engine(IN_CLUSTER, now=time.time() if now is None else now)
        self.engine.set_system_store(host_store())
        for kind, each in listed.items():
            for item in each.items:
                read = read_object(kind, item)
                self.objects.append(read.key)
                self.engine.apply({key: obj for key, obj in read.changes.items() if obj is not None})
                self.source_findings += [read.problem] if read.problem else []
        let_gateways_run(self.engine)


def objects(reach: Reach) -> tuple[ClusterObjects, str]:
    """With the namespace that is meant. References lead anywhere, so everything is read that may be."""

    async def work(client: Client, namespace: str) -> tuple[ClusterObjects, str]:
        own = namespace or client.access.namespace
        found = ClusterObjects(served(await look(client, KINDS.values(), own, beyond=True)))
        for line in found.hidden.said():
            note(line)
        if seen := [key.name for key in found.engine.store.keys("Namespace")]:
            demand_namespace(reach.namespace, seen, CLUSTER)
        return found, namespace

    return ask(reach, work)


# --- documents with the status that stands in the cluster: for status ------------------------------------------------


async def documents(client: Client, kind: str, namespace: str) -> list[Listed]:
    """Of one kind, or of all that have a status; and the classes, which tell whose a Gateway is."""
    asked = {kind, "GatewayClass"} if kind else {each.kind for each in KINDS.values() if has_status(each)}
    found = served(await look(client, (each for each in KINDS.values() if each.kind in asked), namespace, beyond=False))
    refused = [each for each in found.values() if each.refusal is not None]
    if refused and (len(refused) == len(found) or any(each.kind.kind == kind for each in refused)):
        raise next(each.refusal for each in refused if each.refusal and kind in ("", each.kind.kind))
    if kind and kind not in found:
        raise click.ClickException(f"the cluster has no {KINDS[kind].plural}: the CRD is not installed")
    for line in Hidden(refused).said():
        note(line)
    return list(found.values())


def shown(kind: str, item: msgspec.Raw) -> Read:
    """As it stands in the cluster. What has no status may hold secrets, of which only names and sizes are shown."""
    read = read_object(kind, item)
    if not has_status(KINDS[kind]):
        obj = read.changes[read.key]
        return read._replace(document=document(kind, obj) if obj is not None else None)
    found = plain(KINDS[kind], item)
    return read._replace(document={**found, "rejected": read.problem.message} if read.problem else found)


class Documents:
    """What was listed, and what becomes of it while it is followed."""

    def __init__(self, listed: list[Listed]) -> None:
        self._listed = listed
        self._documents: dict[Key, Document] = {}
        self._changed: Callable[[], None] = lambda: None
        self._said = ""
        self.services: Services | None = None
        """To tell which policies miss theirs."""
        for each in listed:
            self.read(each.kind, [shown(each.kind.kind, item) for item in each.items], [])

    def all(self) -> list[Document]:
        order = {kind: number for number, kind in enumerate(KINDS)}
        ordered = sorted(self._documents, key=lambda key: (order[key.kind], key))
        return [with_problem(self._documents[key], self.services) for key in ordered]

    async def follow(self, client: Client, changed: Callable[[], None]) -> None:
        """Watches from where the lists ended, for ever."""
        self._changed = changed
        async with asyncio.TaskGroup() as tasks:
            for each in self._listed:
                if each.path:
                    reflector = Reflector(each.kind, client, each.path, self, read=shown)
                    reflector.version = each.version
                    reflector.known = {key: "" for key in self._documents if key.kind == each.kind.kind}
                    tasks.create_task(reflector.run())

    def read(self, kind: Kind, reads: list[Read], deleted: list[Key]) -> None:
        self._documents.update({read.key: read.document for read in reads if read.document is not None})
        for key in deleted:
            self._documents.pop(key, None)
        self._changed()

    def whole(self, reflector: Reflector) -> None:
        """Nobody waits for it."""

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        said = str(error) if error else ""
        if said and said != self._said:
            note(f"Waiting: {said}")
        self._said = said
