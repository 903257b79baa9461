"""Reads from which release of the Gateway API the installed CRDs are, by their annotation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lasthop.base.api.bundle import BUNDLE_VERSION, CHANNEL, CrdVersion, CrdVersions
from lasthop.base.api.kinds import GATEWAY_API, Kind
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.sources.kubernetes.discovery import CRDS, METADATA


async def crd_versions(client: Client, kinds: Iterable[Kind], before: CrdVersions) -> CrdVersions:
    """Returns the version of each CRD of the Gateway API; without release and channel if it has none, or we may not read it.

    If the server does not answer, it is the version of `before`.
    """
    names = sorted(f"{kind.plural}.{kind.group}" for kind in kinds if kind.group == GATEWAY_API)
    last = dict(before)
    versions = await asyncio.gather(*(_version(client, name, last.get(name, CrdVersion())) for name in names))
    return tuple(zip(names, versions, strict=True))


async def _version(client: Client, name: str, before: CrdVersion) -> CrdVersion:
    try:
        crd = await client.get(f"{CRDS}/{name}", accept=METADATA)
    except ApiError as error:
        return before if error.transient else CrdVersion()
    annotations = crd["metadata"].get("annotations") or {}
    return CrdVersion(str(annotations.get(BUNDLE_VERSION, "")), str(annotations.get(CHANNEL, "")))
