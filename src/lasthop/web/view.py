"""What the admin address shows: the running gateway as the web sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lasthop.api.meta import Key
from lasthop.plan.finding import Finding
from lasthop.proxy.process import Proxy
from lasthop.xds.server import Traffic


class View(Protocol):
    @property
    def ready(self) -> bool: ...

    @property
    def proxies(self) -> Mapping[Key, Proxy]: ...

    @property
    def traffic(self) -> Mapping[str, Traffic]: ...

    def objects(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Objects that have a status of ours, or all of one kind, as a cluster would show them."""
        ...

    def findings(self) -> list[Finding]: ...

    def counts(self) -> Mapping[str, int]:
        """Objects by kind."""
        ...
