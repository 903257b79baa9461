"""What the Envoys of this host hold, as their admin API tells it, without private keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.admin import AdminUnavailable
from lasthop.edge.proxy.supervisor import Proxy
from lasthop.web.redaction import redacted


async def envoy_config(proxies: Mapping[Key, Proxy], gateway: str = "") -> dict[str, Any]:
    """Returns the configuration of each Gateway's Envoy, or of one (`namespace/name`). One that does not answer says why."""
    found = {}
    for key, proxy in sorted(proxies.items()):
        if gateway in ("", key.path):
            try:
                found[key.path] = await asyncio.to_thread(_read, await proxy.admin.config_dump())
            except AdminUnavailable as error:
                found[key.path] = {"error": str(error)}
    return found


def _read(body: bytes) -> Any:
    return redacted(msgspec.json.decode(body))
