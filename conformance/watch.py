"""Keeps a copy of one kind by list and watch, through restarts of the API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from conformance.api import Api, ApiError, Object

Name = tuple[str, str]  # namespace, name


class Watched:
    """`objects` has the cluster's objects; `changed(name, object or None)` is called for each difference."""

    def __init__(self, api: Api, path: str, changed: Callable[[Name, Object | None], None]) -> None:
        self.api, self.path, self.changed = api, path, changed
        self.objects: dict[Name, Object] = {}
        self.synced = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Watched {self.path} {len(self.objects)} objects>"

    async def run(self) -> None:
        while True:
            try:
                version = await self._list()
                self.synced.set()
                async for event in self._stream(version):
                    self._apply(event)
            except (aiohttp.ClientError, ApiError, OSError, ValueError):
                await asyncio.sleep(0.3)

    async def _list(self) -> str:
        listed = await self.api.get(self.path)
        items = {name_of(item): item for item in listed["items"]}
        for name in self.objects.keys() - items.keys():
            self._set(name, None)
        for name, item in items.items():
            if self.objects.get(name) != item:
                self._set(name, item)
        version: str = listed["metadata"]["resourceVersion"]
        return version

    async def _stream(self, version: str) -> AsyncIterator[dict[str, Any]]:
        params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "600"}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=630)
        async with self.api.session.get(self.api.server + self.path, params=params, timeout=timeout) as response:
            if response.status != 200:
                raise ApiError(response.status, "watch refused")
            rest = b""
            # By hand and not by line: aiohttp's readline gives up on lines as long as a large Secret.
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    def _apply(self, event: dict[str, Any]) -> None:
        if event["type"] == "ERROR":
            raise ApiError(event["object"].get("code", 0), event["object"].get("message", ""))
        self._set(name_of(event["object"]), None if event["type"] == "DELETED" else event["object"])

    def _set(self, name: Name, item: Object | None) -> None:
        if item is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = item
        self.changed(name, item)


def name_of(item: Object) -> Name:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]
