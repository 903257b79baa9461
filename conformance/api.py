"""A small client of the API server: requests, server-side apply, discovery of where a kind lives."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import yaml

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

FIELD_MANAGER = "lasthop-conformance"


class ApiError(Exception):
    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason = status, reason


class Api:
    def __init__(self, server: str, authority_pem: bytes, token: str) -> None:
        self.server, self.token = server, token
        self._tls = ssl.create_default_context(cadata=authority_pem.decode())
        self._session: aiohttp.ClientSession | None = None
        self._resources: dict[str, dict[str, tuple[str, bool]]] = {}  # apiVersion -> kind -> (plural, namespaced)

    async def __aenter__(self) -> Api:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
        headers = {"Authorization": f"Bearer {self.token}"}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        assert self._session is not None, "use `async with Api(...)`"
        return self._session

    async def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **params: str
    ) -> Object:
        data = None if body is None else json.dumps(body)
        timeout = aiohttp.ClientTimeout(total=120)  # on machines that do much else
        headers = {"Content-Type": content_type}
        async with self.session.request(
            method, self.server + path, data=data, headers=headers, params=params, timeout=timeout
        ) as response:
            text = await response.text()
        if response.status >= 400:
            raise _error(response.status, text)
        parsed: Object = json.loads(text)
        return parsed

    async def text(self, path: str, **params: str) -> str:
        async with self.session.get(self.server + path, params=params) as response:
            text = await response.text()
        if response.status >= 400:
            raise _error(response.status, text)
        return text

    async def get(self, path: str, **params: str) -> Object:
        return await self.request("GET", path, **params)

    async def create(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Object, content_type: str = MERGE) -> Object:
        return await self.request("PATCH", path, body, content_type)

    async def delete(self, path: str, body: Object | None = None) -> None:
        await self.request("DELETE", path, body)

    async def apply(self, document: Object) -> Object:
        """Server-side apply, so that anything can be installed twice."""
        path = await self.path(document)
        return await self.request("PATCH", path, document, APPLY, fieldManager=FIELD_MANAGER, force="true")

    async def apply_all(self, documents: Iterable[Object]) -> None:
        for document in documents:
            await self.apply(document)

    async def path(self, document: Object) -> str:
        """Where an object lives: /apis/apps/v1/namespaces/x/deployments/y."""
        version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._resources.get(version, {}):  # a CRD may have come since
            resources = (await self.get(root))["resources"]
            self._resources[version] = {r["kind"]: (r["name"], r["namespaced"]) for r in resources if "/" not in r["name"]}
        if kind not in self._resources[version]:
            raise ApiError(404, f"The server has no {kind} in {version}")
        plural, namespaced = self._resources[version][kind]
        scope = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{scope}/{plural}/{metadata['name']}"


def _error(status: int, text: str) -> ApiError:
    try:
        parsed = json.loads(text)
        return ApiError(status, parsed.get("message", text), parsed.get("reason", ""))
    except ValueError:
        return ApiError(status, text)


def documents(path: Path) -> list[Object]:
    """The objects of a YAML file, or of all YAML files of a folder."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as quick on the CRDs
    return [document for file in files for document in yaml.load_all(file.read_text(), loader) if document]
