"""Answers queries from an engine, a few milliseconds at a time, for folder, cluster and controller."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection

import msgspec

from lasthop.base.api.addresses import split_port
from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import RejectedPolicy
from lasthop.base.api.route_kinds import REQUEST_KINDS
from lasthop.edge.probe.result import ProbeResult
from lasthop.edge.slices import in_slices, step_by_step
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.audit import Audit, each_input, inputs, placed
from lasthop.engine.outputs.audit.certificates import CertificateReport, distinct_certificates
from lasthop.engine.outputs.audit.hops import HopReport, joined
from lasthop.engine.outputs.explain.explain import request_answers, tree
from lasthop.engine.plan.finding import Finding
from lasthop.engine.plan.request import Request
from lasthop.engine.plan.upstream import EndpointAddress

Locate = Callable[..., tuple[str, int] | None]


class EngineView:
    observes = False
    probe_notes: tuple[str, ...] = ()
    """Notes about the origin of a probe, for readers of its result."""

    def __init__(self, engine: Engine, locate: Locate | None = None) -> None:
        """`locate` returns file and line of an object, and of a field in it, if objects come from files."""
        self.engine, self._of_files = engine, locate is not None
        self.locate: Locate = locate or _nowhere

    async def count(self, namespace: str = "") -> int:
        """Returns the number of objects, in a namespace and cluster-scoped; empty: everywhere."""
        keys = (key for kind in KINDS for key in self.engine.store.keys(kind) if namespace in ("", key.namespace or namespace))
        return sum(await in_slices(map(self._written, keys)))

    def _written(self, key: Key) -> bool:
        """Returns whether a user wrote the object and it is applied: from files, the loader adds Namespaces and rejected
        policies."""
        if not self._of_files:
            return True
        if key.kind == "Namespace":
            return self.locate(key) is not None
        obj = self.engine.store.get(key)
        return not isinstance(obj, RejectedPolicy) or obj.last_good is not None

    async def hidden(self) -> tuple[str, ...]:
        """Returns the reasons why hops may be missing, a line each."""
        return ()

    def unseen(self, finding: Finding) -> Finding | None:
        """Returns the missing permission that may be the only reason for a finding."""
        return None

    async def namespaces(self) -> Collection[str]:
        return {key.name for key in self.engine.store.keys("Namespace")}

    async def names(self, kind: str) -> Collection[tuple[str, str]]:
        """Returns (namespace, name) of each object, including policies that could not be fully decoded."""
        return {key[1:] for key in self.engine.store.keys(kind)}

    async def hops(self) -> list[HopReport]:
        return joined(await in_slices(self.engine.each_hop()))

    async def certificates(self) -> list[CertificateReport]:
        return distinct_certificates(await in_slices(self.engine.each_holder()))

    async def audit(self) -> Audit:
        place = functools.cache(self.locate)
        hops = await in_slices(placed(hop, place) for hop in await self.hops())
        certificates = await in_slices(placed(certificate, place) for certificate in await self.certificates())
        return Audit(tuple(hops), tuple(certificates), inputs(await in_slices(each_input(self.engine.store))))

    async def explain(self, key: Key) -> Json | None:
        return await step_by_step(tree(self.engine.graph, key, self.locate))

    async def explain_request(self, request: Request, gateway: str = "") -> list[Json]:
        keys, store = sorted(self.engine.store.keys("Gateway")), self.engine.store
        gateways = [key for key in keys if gateway in ("", key.path, key.name)]
        routes = [key for kind in REQUEST_KINDS for key in sorted(store.keys(kind))]
        return await step_by_step(request_answers(self.engine.graph, gateways, routes, request, self.locate))

    async def probe(self, key: Key, address: str) -> ProbeResult:
        host, port = split_port(address)
        return await self._probe(key, EndpointAddress(host.lower(), int(port)) if address else None)

    async def probe_hop(self, hop: HopReport) -> ProbeResult:
        """Connects to the endpoints of one hop, as its Gateway would, and nowhere else."""
        return await self._probe(hop.backend, of=(hop.gateway.path, hop.port))

    async def _probe(
        self, key: Key, endpoint: EndpointAddress | None = None, of: tuple[str, int] | None = None
    ) -> ProbeResult:
        """`of` limits the probe to the hops of this Gateway and port."""
        from lasthop.edge.probe.plan import probe, targets  # loads OpenSSL, which a gateway should not need at start-up

        todo = [target for target in targets(self.engine, key, endpoint) if of in (None, (target.gateway, target.port))]
        return await asyncio.to_thread(probe, key, todo, notes=self.probe_notes)


def _nowhere(*_: object) -> None:
    return None


def located(finding: Finding, locate: Locate) -> Finding:
    """Returns the finding with file and line of its object, if that comes from a file."""
    if finding.file or finding.object is None:
        return finding
    place = locate(finding.object, finding.field) or locate(finding.object, "")
    return msgspec.structs.replace(finding, file=place[0], line=place[1]) if place else finding
