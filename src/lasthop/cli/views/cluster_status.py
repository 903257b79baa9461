"""The objects of a cluster with the status that controllers have written, listed once or followed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import click
import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS, Kind, document, has_status
from lasthop.base.api.meta import Key
from lasthop.cli.args.target import CLUSTER
from lasthop.cli.render.terminal import note
from lasthop.cli.views.cluster import require_crds
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.objects import DecodedObject, read_object
from lasthop.edge.sources.kubernetes.findings import Services, services, with_problem
from lasthop.edge.sources.kubernetes.reflector import Reflector
from lasthop.edge.sources.kubernetes.snapshot import ListResult, look, plain
from lasthop.edge.sources.kubernetes.visibility import RBACVisibility
from lasthop.engine.outputs.status.summary import summary


class ClusterStatusView:
    where = CLUSTER

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace, self.home = client, namespace, client.access.namespace
        self._listed: list[ListResult] = []
        self._documents: dict[Key, Json] = {}
        self._changed = asyncio.Event()
        self._error = ""
        self._services: Services | None = None
        """Needed to find policies without a status entry."""

    async def namespaces(self) -> tuple[str, ...]:
        return ()

    async def problems(self) -> tuple[str, ...]:
        return ()

    async def objects(self, *kinds: str) -> list[Json]:
        """Lists the objects at the first call; afterwards returns the state that `follow` maintains."""
        if not self._listed:
            self._listed = await self._list(kinds)
            for result in self._listed:
                self.read(result.kind, [shown(result.kind.kind, item) for item in result.items], [])
            self._services = await services(self._client, self._documents.values(), self._namespace)
        order = {kind: number for number, kind in enumerate(KINDS)}
        ordered = sorted(self._documents, key=lambda key: (order[key.kind], key))
        documents = [with_problem(self._documents[key], self._services) for key in ordered]
        owners = {d["metadata"]["name"]: d["spec"]["controllerName"] for d in documents if d["kind"] == "GatewayClass"}
        return [{**document, "ready": summary(document, owners)._asdict()} for document in documents]

    async def _list(self, named: Collection[str]) -> list[ListResult]:
        """Lists objects of some kinds, or of all kinds with a status; and GatewayClasses, which name the controller."""
        listed = require_crds(await look(self._client, _kinds(named), self._namespace, beyond=False))
        refused = {result.kind.kind: result.refusal for result in listed.values() if result.refusal is not None}
        if missed := [refusal for kind, refusal in refused.items() if kind in named or len(refused) == len(listed)]:
            raise missed[0]
        _require_kinds(named, listed)
        for line in RBACVisibility([listed[kind] for kind in refused]).refusal_lines():
            note(line)
        return list(listed.values())

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        self._changed.clear()
        async with asyncio.TaskGroup() as tasks:
            for result in self._listed:
                if result.path:
                    reflector = Reflector(result.kind, self._client, result.path, self, read=shown)
                    reflector.version = result.version
                    reflector.known = {key: "" for key in self._documents if key.kind == result.kind.kind}
                    tasks.create_task(reflector.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                await changed()

    # --- called by reflectors ----------------------------------------------------------------------------------------

    def read(self, kind: Kind, reads: list[DecodedObject], deleted: list[Key]) -> None:
        self._documents.update({read.key: read.document for read in reads if read.document is not None})
        for key in deleted:
            self._documents.pop(key, None)
        self._changed.set()

    def whole(self, reflector: Reflector) -> None:
        pass

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        refusal_lines = str(error) if error else ""
        if refusal_lines and refusal_lines != self._error:
            note(f"Waiting: {refusal_lines}")
        self._error = refusal_lines


def _kinds(named: Collection[str]) -> list[Kind]:
    return [kind for kind in KINDS.values() if (kind.kind in (*named, "GatewayClass") if named else has_status(kind))]


def _require_kinds(named: Collection[str], listed: Mapping[str, ListResult]) -> None:
    if missing := [kind for kind in named if kind not in listed]:
        raise click.ClickException(f"the cluster has no {KINDS[missing[0]].plural}: the CRD is not installed")


def shown(kind: str, item: msgspec.Raw) -> DecodedObject:
    """Reads an object for display. A kind without a status may hold secrets, so only names and sizes of its content appear."""
    read = read_object(kind, item)
    if not has_status(KINDS[kind]):
        return read._replace(document=document(kind, read.object) if read.object is not None else None)
    content = plain(KINDS[kind], item)
    return read._replace(document={**content, "rejected": read.problem.message} if read.problem else content)
