"""Keeps the verification memory in a ConfigMap in the controller's namespace.

Every replica reads it at the start. The leader writes it, merged with its predecessor's content, and checks every few seconds
that it still exists. A ConfigMap that was deleted, damaged or replaced by an old copy is reported and written again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.kubernetes.client import path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.engine.memory.codec import Damaged, Encoder, Memory, lost, pack, unpack
from lasthop.engine.memory.record import Record, joined
from lasthop.run.infra import memory
from lasthop.run.infra.kubernetes.api import Api, find
from lasthop.run.infra.kubernetes.manifests import encoded
from lasthop.run.infra.kubernetes.names import MANAGED_BY, MANAGER

CONFIG_MAP: Final = "lasthop-verification"
"""RBAC refers to this name."""
DATA: Final = "memory"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
"""Requests an object without its content."""
WRITE_INTERVAL: Final = 5.0
LAST_WRITE: Final = 2.0
"""Seconds for a write before exit."""
RETRY: Final = 1.0
MAX_PORTS: Final = 5000
"""Each has some 100 bytes, of the 1 MiB limit of an object."""


RESOURCE: Final = ("", "v1", "configmaps")


def config_map(namespace: str) -> str:
    """Returns the API path of the ConfigMap."""
    return path_of(*RESOURCE, namespace, CONFIG_MAP)


class VerificationConfigMap:
    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        version: Callable[[], object],
        current: Callable[[], Memory],
        may_write: Callable[[], bool],
        problem: Callable[[str], None],
        lost: Callable[[str], None],
        adopt: Callable[[Record], None],
    ) -> None:
        """`version` changes whenever `current()` does; `may_write` returns whether this replica leads. `lost` records a loss
        of the ConfigMap, so that `current()` contains it. `adopt` receives the written record, merged with that of other
        replicas."""
        self._api, self._namespace, self._version, self._current = api, namespace, version, current
        self._may_write, self._problem, self._lost, self._adopt = may_write, RepeatFilter(problem), lost, adopt
        self._written: object = None
        self._stored: Json | None = None
        """The ConfigMap as last read or written here; the server detects writes by others."""
        self._record = Record()
        """The record in it."""
        self._revision = 0
        """The highest revision read or written here."""
        self._reported: str | None = None
        """The resourceVersion of the last reported content."""
        self._gap = False
        self._took, self._encode = 0.0, Encoder()

    async def load(self) -> Memory:
        """Returns the stored memory, once the API server responds; empty if there is none or it may not be read."""
        while True:
            try:
                return self._readable(await find(self._api, config_map(self._namespace)))
            except ApiError as error:
                self._report(error)
                if error.status == 403:
                    self._gap = True
                    return Memory()
            await asyncio.sleep(RETRY)

    def _readable(self, document: Json | None) -> Memory:
        """Returns the stored memory, and reports once per content if it is not the last one."""
        stored, version = content(document), document["metadata"].get("resourceVersion") if document else None
        if (loss := lost(stored, self._revision)) and (document is None or version != self._reported):
            self._lost(f"ConfigMap {self._namespace}/{CONFIG_MAP} {loss}")
        self._reported = version
        remembered = stored if isinstance(stored, Memory) else Memory()
        self._revision = max(self._revision, remembered.record.revision)
        return remembered

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(memory.pause(WRITE_INTERVAL, self._took))

    async def refresh(self) -> None:
        """Writes changed or lost memory if this replica leads."""
        if not self._may_write():
            return
        try:
            if await self._overwritten():
                self._stored, self._written = None, None
            version = self._version()
            if version != self._written:
                await self.write()
                # The next round reports problems of this write.
                self._written, self._problem.last = version, ""
        except ApiError as error:
            self._report(error)

    async def _overwritten(self) -> bool:
        """Returns whether the ConfigMap is not the one last read or written here."""
        if self._stored is None:
            return False
        try:
            now = await self._api.get(config_map(self._namespace), accept=METADATA)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        stored, current = (document["metadata"] for document in (self._stored, now))
        return (stored.get("uid"), stored["resourceVersion"]) != (current.get("uid"), current["resourceVersion"])

    async def finish(self) -> None:
        """Writes changed memory before exit, unless the API server is slow."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITE):
                await self.refresh()

    async def write(self) -> None:
        for _ in range(5):
            if self._stored is None:
                self._stored = await find(self._api, config_map(self._namespace))
                self._record = self._readable(self._stored).record
            document, current = self._stored, self._current()
            # A record that was not read at the start is not continued, because changes in between are unknown.
            record = joined(self._record, current.record, continued=not self._gap)
            record = msgspec.structs.replace(record, revision=self._revision + 1)
            begun = time.monotonic()
            packed = await asyncio.to_thread(pack, Memory(current.ports, record), MAX_PORTS, self._encode)
            data = encoded({DATA: packed})
            self._took = time.monotonic() - begun
            try:
                if document is None:
                    self._stored = await self._api.create(path_of(*RESOURCE, self._namespace), self._document(data))
                else:
                    self._stored = await self._api.put(config_map(self._namespace), {**document, "binaryData": data})
                self._record, self._revision, self._gap = record, record.revision, False
                self._adopt(record)
                return
            except ApiError as error:
                self._stored = None
                deleted = document is not None and error.not_found
                if not (error.conflict or deleted):
                    raise
        raise ApiError(409, "Conflict", f"ConfigMap {self._namespace}/{CONFIG_MAP} keeps changing")

    def _document(self, data: dict[str, str]) -> Json:
        metadata = {"name": CONFIG_MAP, "namespace": self._namespace, "labels": {MANAGED_BY: MANAGER}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data}

    def _report(self, error: ApiError) -> None:
        self._problem(f"the record of verification changes (ConfigMap {self._namespace}/{CONFIG_MAP}): {error}")


def content(document: Json | None) -> Memory | Damaged | None:
    """Returns the content of a ConfigMap; None without a ConfigMap."""
    if document is None:
        return None
    data = document.get("binaryData")
    packed = data.get(DATA) if isinstance(data, dict) else None
    if not isinstance(packed, str):
        return Damaged(f"has no {DATA} in binaryData")
    try:
        return unpack(base64.b64decode(packed, validate=True))
    except ValueError as error:
        return Damaged(f"is not base64: {error}")
