"""The questions that commands, the admin page and the admin API ask about Gateways, routes, policies and their backends.

Four views answer them: of a folder of YAML files, of a running gateway over its admin socket, of a cluster, and of the
controller in this process. So a command is a target, a question and a renderer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # `lasthop status` starts quickly because it loads none of these
    from lasthop.api.meta import Key
    from lasthop.outputs.audit.audit import Audit
    from lasthop.outputs.audit.certificates import CertificateReport
    from lasthop.outputs.audit.hops import HopReport
    from lasthop.plan.finding import Finding
    from lasthop.plan.not_applied import NotApplied
    from lasthop.probe.result import ProbeResult
    from lasthop.proxy.process import Proxy
    from lasthop.web.measures import Durations, Measure
    from lasthop.web.readiness import Readiness
    from lasthop.xds.server import Traffic

Document = dict[str, Any]
"""A Kubernetes object as JSON, or the JSON form of an answer."""


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

    async def explain(self, key: Key, *, reads: bool = False) -> Document | None:
        """Returns what applies to an object and why not, or (`reads`) the queries behind that; None if it does not exist."""
        ...

    async def probe(self, key: Key, address: str) -> ProbeResult:
        """Connects to the backends of a policy, Service, XBackend or route, or (`address`) to HOST:PORT in their place."""
        ...


class AdminView(View, Protocol):
    """Adds what only the controller in this process can tell."""

    def readiness(self) -> Readiness:
        """Whether it is ready, and what of the input is not in force."""
        ...

    @property
    def proxies(self) -> Mapping[Key, Proxy]: ...

    @property
    def traffic(self) -> Mapping[str, Traffic]: ...

    async def objects(self, kind: str | None = None) -> list[Document]:
        """Returns objects that have a status of ours, or all of one kind, as a cluster would show them."""
        ...

    async def hops(self) -> list[HopReport]: ...

    async def certificates(self) -> list[CertificateReport]: ...

    def not_applied(self) -> tuple[NotApplied, ...]:
        """Returns the files whose present text is refused, and what is in force instead."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Returns the number of objects by kind."""
        ...

    def measures(self) -> Iterable[Measure]: ...

    @property
    def time_to_programmed(self) -> Durations: ...
