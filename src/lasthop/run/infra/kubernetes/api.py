"""Declares the API server methods that infra uses; `kubernetes.client.Client` implements them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lasthop.base.api.documents import Json
from lasthop.edge.kubernetes.client import JSON, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.run.infra.kubernetes.manifests import RESOURCES


class Api(Protocol):
    """Every method raises `kubernetes.errors.ApiError`."""

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Json: ...
    async def create(self, path: str, body: Json) -> Json: ...
    async def put(self, path: str, body: Json) -> Json: ...
    async def apply(self, path: str, body: Json) -> Json: ...
    async def delete(self, path: str, *, uid: str = "") -> None: ...


async def find(api: Api, path: str) -> Json | None:
    """Returns the object; None if it does not exist."""
    try:
        return await api.get(path)
    except ApiError as error:
        if error.not_found:
            return None
        raise


def collection(kind: str, namespace: str = "") -> str:
    return path_of(*RESOURCES[kind], namespace)


def path(kind: str, namespace: str, name: str) -> str:
    return path_of(*RESOURCES[kind], namespace, name)
