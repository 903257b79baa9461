"""The questions that commands, the admin page and the admin API ask about Gateways, routes, policies and their backends.

Four views answer them: of a folder of YAML files, of a running gateway over its admin socket, of a cluster, and of the
controller in this process. So a command is a target, a question and a renderer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from lasthop.api.documents import Json

if TYPE_CHECKING:  # `lasthop status` starts quickly because it loads none of these
    from lasthop.api.meta import Key
    from lasthop.outputs.audit.audit import Audit
    from lasthop.plan.finding import Finding
    from lasthop.probe.result import ProbeResult


class View(Protocol):
    async def namespaces(self) -> Collection[str]:
        """Returns the namespaces that exist; empty if they cannot be listed."""
        ...

    async def names(self, kind: str) -> Collection[tuple[str, str]]:
        """Returns (namespace, name) of every object of a kind."""
        ...

    async def findings(self) -> list[Finding]:
        """Returns everything that is wrong."""
        ...

    async def problems(self) -> tuple[str, ...]:
        """Returns why answers may be incomplete, a line each: input that is not applied, or that cannot be read."""
        ...

    async def audit(self) -> Audit:
        """Returns how every backend that a route refers to is verified, and the certificates that will expire."""
        ...

    async def explain(self, key: Key, *, reads: bool = False) -> Json | None:
        """Returns what applies to an object and why not, or (`reads`) the queries behind that; None if it does not exist."""
        ...

    async def probe(self, key: Key, address: str) -> ProbeResult:
        """Connects to the backends of a policy, Service, XBackend or route, or (`address`) to HOST:PORT in their place."""
        ...
