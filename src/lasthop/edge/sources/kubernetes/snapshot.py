"""Lists a cluster once, with the user's own permissions, without watches or writes.

If a user may read only one namespace, only that namespace is listed. Hidden kinds are recorded, because "not visible" does not
mean "none".
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import Kind
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.objects import ObjectList, selector
from lasthop.edge.sources.kubernetes.discovery import NO_CRD, choose, discover, find_crd

IN_FLIGHT: Final = 6
ATTEMPTS: Final = 2
"""A long list that expires (410) is started again once."""


class ListResult(NamedTuple):
    """Holds the objects of one kind that could be listed."""

    kind: Kind
    path: str
    version: str = ""
    """The resourceVersion from which a watch continues."""
    items: tuple[msgspec.Raw, ...] = ()
    namespace: str = ""
    """The namespace of the objects; empty for all namespaces."""
    refusal: ApiError | None = None
    """The error that prevented the list, or a list beyond `namespace`."""
    unread: str = ""
    """The reason why nothing was listed although objects may exist: the server serves no supported version of the kind."""


async def look(client: Client, kinds: Iterable[Kind], namespace: str, *, beyond: bool) -> dict[str, ListResult]:
    """Lists the served kinds by name. With `beyond` it lists all namespaces, or only this one if permissions allow no more.

    A 403 is part of the result; other errors are raised as `ApiError`.
    """
    all_kinds = tuple(kinds)
    versions = choose(all_kinds, await discover(client, all_kinds))
    gate = asyncio.Semaphore(IN_FLIGHT)

    async def list_kind(kind: Kind) -> ListResult | None:
        async with gate:
            return await _readable(client, kind, versions[kind.kind], namespace, beyond)

    results = await asyncio.gather(*(list_kind(kind) for kind in all_kinds if kind.kind in versions))
    return {listed.kind.kind: listed for listed in results if listed is not None}


async def unread(client: Client, kind: Kind) -> ListResult | None:
    """Returns a result without objects for a kind that may have some but is not served in a supported version."""
    served = await discover(client, [kind])
    crd = await find_crd(client, kind, served) if kind.kind not in choose([kind], served) else NO_CRD
    return ListResult(kind, "", unread=crd.unread) if crd.unread else None


async def _readable(client: Client, kind: Kind, version: str, namespace: str, beyond: bool) -> ListResult | None:
    scopes = ("",) if not kind.namespaced or not namespace else ("", namespace) if beyond else (namespace,)
    refusal: ApiError | None = None
    for scope in scopes:
        try:
            listed = await _list(client, kind, path_of(kind.group, version, kind.plural, scope))
            return listed._replace(namespace=scope, refusal=refusal)
        except ApiError as error:
            if error.not_found:  # removed since discovery
                return None
            if error.status != 403:
                raise
            refusal = refusal or error
    return ListResult(kind, "", refusal=refusal)


async def _list(client: Client, kind: Kind, path: str, attempt: int = 1) -> ListResult:
    items: list[msgspec.Raw] = []
    version = ""
    try:
        async with aclosing(client.pages(path, selector(kind.kind))) as pages:
            async for page in pages:
                content = msgspec.json.decode(page, type=ObjectList)
                version = content.metadata.resource_version
                items += content.items or ()
    except ApiError as error:
        if error.expired and attempt < ATTEMPTS:
            return await _list(client, kind, path, attempt + 1)
        raise
    except msgspec.DecodeError as error:
        raise ApiError(0, "List", f"{path}: the response cannot be decoded: {error}") from error
    return ListResult(kind, path, version, tuple(items))


def plain(kind: Kind, item: msgspec.Raw) -> Json:
    """Returns an object in kubectl's form. The items of a list may omit apiVersion and kind."""
    document: Json = msgspec.json.decode(item)
    document["metadata"].pop("managedFields", None)
    return {"apiVersion": kind.api_versions[0], "kind": kind.kind, **document}
