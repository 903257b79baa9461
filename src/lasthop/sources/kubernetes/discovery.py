"""Discovers which kinds the API server serves, and chooses the version in which we read each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from lasthop.api.kinds import Kind
from lasthop.kubernetes.client import Client
from lasthop.kubernetes.errors import ApiError

Served = frozenset[tuple[str, str, str]]
"""(group, version, plural)"""


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    name: str
    versions: list[_Version]


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


def choose(kinds: Iterable[Kind], served: Served) -> dict[str, str]:
    """Returns the version in which to read each served kind: the first of ours that is served."""
    versions = {k.kind: next((v for v in k.versions if (k.group, v, k.plural) in served), None) for k in kinds}
    return {kind: version for kind, version in versions.items() if version}


async def discover(client: Client, kinds: Iterable[Kind]) -> Served:
    """Returns everything served. Raises `ApiError` unless the answer is complete: an unknown kind is not a missing one."""
    wanted = {(kind.group, version) for kind in kinds for version in kind.versions}
    try:
        groups = msgspec.json.decode(await client.request("GET", "/apis"), type=_Groups).groups
        served = {(group.name, v.version) for group in groups for v in group.versions} | {("", "v1")}
        asked = sorted(wanted & served)
        answers = await asyncio.gather(*(_resources(client, group, version) for group, version in asked))
    except msgspec.DecodeError as error:
        raise ApiError(0, "Discovery", f"the response cannot be decoded: {error}") from error
    return frozenset(
        (group, version, resource) for (group, version), names in zip(asked, answers, strict=True) for resource in names
    )


async def _resources(client: Client, group: str, version: str) -> list[str]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        answer = await client.request("GET", path)
    except ApiError as error:
        if error.not_found:  # removed since /apis was read
            return []
        raise
    return [resource.name for resource in msgspec.json.decode(answer, type=_Resources).resources or ()]
