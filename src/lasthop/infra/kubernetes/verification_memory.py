"""Keeps what is remembered of verification in a ConfigMap of the controller's namespace. Every replica reads it when it
starts; the leader writes it, merged with what the one before has written."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Callable
from typing import Final

from lasthop.api.documents import Json
from lasthop.infra import memory
from lasthop.infra.kubernetes.api import Api, find
from lasthop.infra.kubernetes.manifests import encoded
from lasthop.infra.kubernetes.names import MANAGED_BY, MANAGER
from lasthop.infra.memory import Memory
from lasthop.kubernetes.client import path_of
from lasthop.kubernetes.errors import ApiError
from lasthop.on_change import OnChange
from lasthop.outputs.audit.changes import Change, merged

CONFIG_MAP: Final = "lasthop-verification"
"""RBAC refers to it."""
DATA: Final = "memory"
WRITE_INTERVAL: Final = 5.0
LAST_WRITE: Final = 2.0
"""Seconds for a write before the end."""
RETRY: Final = 1.0
MAX_PORTS: Final = 5000
"""Some 100 bytes each, of the 1 MiB that an object may have."""


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
    ) -> None:
        """`version` changes whenever `current()` does; `may_write` returns whether this replica leads."""
        self._api, self._namespace, self._version, self._current = api, namespace, version, current
        self._may_write, self._problem = may_write, OnChange(problem)
        self._written: object = None
        self._stored: Json | None = None
        """The ConfigMap as it was last read or written here; the server says if somebody has written it since."""
        self._changes: tuple[Change, ...] = ()
        """Those in it."""
        self._took, self._encode = 0.0, memory.Encoder()

    async def load(self) -> Memory:
        """Returns what is stored, as soon as the API server answers; empty if it holds none or does not let us read it."""
        while True:
            try:
                return content(await find(self._api, config_map(self._namespace)))
            except ApiError as error:
                self._report(error)
                if error.status == 403:
                    return Memory()
            await asyncio.sleep(RETRY)

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(memory.pause(WRITE_INTERVAL, self._took))

    async def refresh(self) -> None:
        """Writes what is new, if this replica leads."""
        version = self._version()
        if version == self._written or not self._may_write():
            return
        try:
            await self.write()
            self._written, self._problem.last = version, ""
        except ApiError as error:
            self._report(error)

    async def finish(self) -> None:
        """Writes what is new before the end, unless the API server takes long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WRITE):
                await self.refresh()

    async def write(self) -> None:
        for _ in range(5):
            if self._stored is None:
                self._stored = await find(self._api, config_map(self._namespace))
                self._changes = content(self._stored).changes
            document, current = self._stored, self._current()
            together = Memory(current.ports, merged(self._changes, current.changes))
            begun = time.monotonic()
            data = encoded({DATA: await asyncio.to_thread(memory.pack, together, MAX_PORTS, self._encode)})
            self._took = time.monotonic() - begun
            try:
                if document is None:
                    self._stored = await self._api.create(path_of(*RESOURCE, self._namespace), self._document(data))
                elif document.get("binaryData") != data:
                    self._stored = await self._api.put(config_map(self._namespace), {**document, "binaryData": data})
                self._changes = together.changes
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
        self._problem(f"the record of how backends were verified (ConfigMap {self._namespace}/{CONFIG_MAP}): {error}")


def content(document: Json | None) -> Memory:
    """Returns what a ConfigMap holds; empty if it is not ours."""
    try:
        return memory.unpack(base64.b64decode(((document or {}).get("binaryData") or {}).get(DATA, "")))
    except (ValueError, TypeError):
        return Memory()
