"""What the admin address shows: the running gateway as the web sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # the CLI reads the page's words without loading a server
    from lasthop.api.meta import Key
    from lasthop.outputs.audit.audit import Audit
    from lasthop.outputs.audit.certificates import CertificateReport
    from lasthop.outputs.audit.hops import HopReport
    from lasthop.plan.finding import Finding
    from lasthop.plan.not_applied import NotApplied
    from lasthop.proxy.process import Proxy
    from lasthop.web.measures import Durations, Measure
    from lasthop.web.readiness import Readiness
    from lasthop.xds.server import Traffic


class View(Protocol):
    def readiness(self) -> Readiness:
        """Whether it is ready, and what of the input is not in force."""
        ...

    @property
    def proxies(self) -> Mapping[Key, Proxy]: ...

    @property
    def traffic(self) -> Mapping[str, Traffic]: ...

    async def objects(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Objects that have a status of ours, or all of one kind, as a cluster would show them."""
        ...

    async def hops(self) -> list[HopReport]:
        """How every backend that a route leads to is spoken to."""
        ...

    async def certificates(self) -> list[CertificateReport]:
        """What will expire one day, the first first."""
        ...

    async def audit(self) -> Audit:
        """Both, with the places of the objects that decide."""
        ...

    async def probe(self, key: Key, address: str) -> dict[str, Any]:
        """What the backends of a policy or a route, or whoever listens at an address, would come to with it."""
        ...

    def findings(self) -> list[Finding]: ...

    def not_applied(self) -> tuple[NotApplied, ...]:
        """The files whose present text is refused, and what is in force instead."""
        ...

    def explain(self, key: Key, *, reads: bool = False) -> dict[str, Any] | None:
        """What applies to an object and why not, or the recorded reads themselves; None if there is no such object."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Objects by kind."""
        ...

    def measures(self) -> Iterable[Measure]:
        """What is counted besides."""
        ...

    @property
    def time_to_programmed(self) -> Durations: ...
