"""Discovers the kinds that the API server serves, selects the version to read of each, and finds out why a kind is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.bundle import BUNDLE_VERSION, CHANNEL, CrdVersion, CrdVersions
from lasthop.base.api.kinds import GATEWAY_API, Kind
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.errors import ApiError

Served = frozenset[tuple[str, str, str]]
"""(group, version, plural)"""
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Requests only metadata, because the schemas are most of a CRD."""


class Crd(NamedTuple):
    """Holds the part of a kind's CRD that decides whether the kind exists."""

    version: str = ""
    """Its resourceVersion; empty if the CRD does not exist or cannot be read."""
    unread: str = ""
    """The reason why unreadable objects of the kind may exist; empty if the server has no such CRD."""


NO_CRD: Final = Crd()


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
    """Returns the version to read of each served kind: the first supported version."""
    versions = {k.kind: next((v for v in k.versions if (k.group, v, k.plural) in served), None) for k in kinds}
    return {kind: version for kind, version in versions.items() if version}


async def find_crd(client: Client, kind: Kind, served: Served = frozenset()) -> Crd:
    """Looks for the CRD of a kind without a supported version. Only a 404 proves that it does not exist."""
    if not kind.group:
        return Crd(unread="every API server serves this kind, and its discovery does not list it")
    try:
        meta = (await client.get(f"{CRDS}/{kind.plural}.{kind.group}", accept=METADATA)).get("metadata") or {}
    except ApiError as error:
        return NO_CRD if error.not_found else Crd(unread=f"whether its CRD exists cannot be determined: {error}")
    served_versions = sorted(version for group, version, plural in served if (group, plural) == (kind.group, kind.plural))
    if served_versions:
        reason = f"its CRD serves only {', '.join(served_versions)}, and Lasthop reads {', '.join(kind.versions)}"
    elif meta.get("deletionTimestamp"):
        reason = "its CRD is being deleted"
    else:
        reason = "its CRD exists, and the API server does not serve it in a version that Lasthop reads"
    return Crd(str(meta.get("resourceVersion") or "unknown"), reason)


async def discover(client: Client, kinds: Iterable[Kind]) -> Served:
    """Returns all served resources in the groups of these kinds, in all versions. Raises `ApiError` unless the response is
    complete, because an unknown kind is not a missing kind."""
    group_names = {kind.group for kind in kinds}
    try:
        groups = msgspec.json.decode(await client.request("GET", "/apis"), type=_Groups).groups
        served = {(group.name, v.version) for group in groups for v in group.versions} | {("", "v1")}
        requested = sorted((group, version) for group, version in served if group in group_names)
        responses = await asyncio.gather(*(_resources(client, group, version) for group, version in requested))
    except msgspec.DecodeError as error:
        raise ApiError(0, "Discovery", f"the response cannot be decoded: {error}") from error
    return frozenset(
        (group, version, resource) for (group, version), names in zip(requested, responses, strict=True) for resource in names
    )


async def _resources(client: Client, group: str, version: str) -> list[str]:
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        response = await client.request("GET", path)
    except ApiError as error:
        if error.not_found:  # removed since /apis was read
            return []
        raise
    return [resource.name for resource in msgspec.json.decode(response, type=_Resources).resources or ()]


async def crd_versions(client: Client, kinds: Iterable[Kind], before: CrdVersions) -> CrdVersions:
    """Returns the version of each Gateway API CRD, with an empty version if the CRD has none, or may not be read.

    If the server does not respond, the version in `before` is kept.
    """
    names = sorted(f"{kind.plural}.{kind.group}" for kind in kinds if kind.group == GATEWAY_API)
    previous = dict(before)
    versions = await asyncio.gather(*(_version(client, name, previous.get(name, CrdVersion())) for name in names))
    return tuple(zip(names, versions, strict=True))


async def _version(client: Client, name: str, before: CrdVersion) -> CrdVersion:
    try:
        crd = await client.get(f"{CRDS}/{name}", accept=METADATA)
    except ApiError as error:
        return before if error.transient else CrdVersion()
    annotations = crd["metadata"].get("annotations") or {}
    return CrdVersion(str(annotations.get(BUNDLE_VERSION, "")), str(annotations.get(CHANNEL, "")))
