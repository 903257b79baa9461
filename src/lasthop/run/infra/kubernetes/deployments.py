"""Runs proxies as Deployments: `want()` receives the desired state, `run()` reconciles the cluster with it while we lead.

want ──> diff (pure) ──> apply, delete ──> Services' addresses ──> changed(Gateway, Infrastructure)
             ^── all objects with our labels, listed at intervals and updated by our own writes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.base.pki.authority import Authority
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.slices import wait_for
from lasthop.engine.plan.infrastructure import Infrastructure
from lasthop.run.infra.kubernetes import names
from lasthop.run.infra.kubernetes.api import Api, collection, find, path
from lasthop.run.infra.kubernetes.desired import DesiredGateway, Site
from lasthop.run.infra.kubernetes.diff import Action, Apply, Delete, ObjectRef, diff, is_ours, leftovers, owners
from lasthop.run.infra.kubernetes.manifests import RESOURCES
from lasthop.run.infra.kubernetes.services import LOAD_BALANCER, read_back, service_specs

RESYNC: Final = 30.0
"""Seconds after which everything is listed again, because others may delete objects, addresses change, and certificates
expire."""
RETRY: Final = 5.0
POLL_INTERVAL: Final = 1.0
"""Seconds between polls for a load balancer's address that is still pending."""
IN_FLIGHT: Final = 4
OPTIONAL: Final = frozenset({"HorizontalPodAutoscaler"})
"""Kinds that most Gateways do not need. Permissions of an older installation lack them: the list is then empty, and writing
such an object reports the error at its Gateway."""
SELECTOR: Final = f"{names.APP}={names.PROXY},{names.MANAGED_BY}={names.MANAGER}"


class Deployments:
    def __init__(
        self,
        api: Api,
        site: Site,
        *,
        authority: Callable[[], Authority | None],
        changed: Callable[[Key, Infrastructure], None],
        may_write: Callable[[], bool] = lambda: True,
        namespaces: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
        retry: float = RETRY,
        look_every: float = POLL_INTERVAL,
    ) -> None:
        """`namespaces` are the watched namespaces; empty: all. `may_write` is called right before each write, because a
        process that was frozen may have lost the Lease without noticing."""
        self._may_write = may_write
        self._api, self._site, self._authority, self._changed = api, site, authority, changed
        self._namespaces = namespaces or ("",)
        self._clock, self._retry, self._look_every = clock, retry, look_every
        self._wanted: Mapping[Key, DesiredGateway] | None = None
        self._observed: dict[ObjectRef, Json] = {}
        self._problems: dict[Key, str] = {}
        self._reported: dict[Key, Infrastructure] = {}
        self._due: set[Key] = set()
        self._again: set[Key] = set()
        """Gateways to retry shortly."""
        self._news = asyncio.Event()

    def want(self, gateways: Mapping[Key, DesiredGateway]) -> None:
        """Receives all our Gateways. Objects of other Gateways are deleted."""
        old = self._wanted or {}
        self._due |= {key for key, gateway in gateways.items() if old.get(key) != gateway}
        if self._wanted is None or gateways.keys() != old.keys() or self._due:
            self._news.set()
        self._wanted = dict(gateways)

    async def run(self) -> None:
        """Reconciles until cancelled because another replica leads. Can be called again."""
        self._reported.clear()
        listed = 0.0
        while True:
            await self._until_wanted()
            if not listed or self._clock() - listed >= RESYNC:
                if not await self._list():
                    await asyncio.sleep(self._retry)
                    continue
                listed = self._clock()
                self._due |= set(self._wanted or ())
            self._news.clear()
            due, self._due = self._due, set()
            await self._reconcile(due)
            await self._pause(listed)

    async def _until_wanted(self) -> None:
        while self._wanted is None or self._authority() is None:
            self._news.clear()
            await wait_for(self._news, self._look_every)

    async def _pause(self, listed: float) -> None:
        """Waits until there is something to do."""
        wait = max(0.0, listed + RESYNC - self._clock())
        if self._again:
            self._due |= self._again
            wait = min(wait, self._retry)
        if pending := self._without_address():
            wait = min(wait, self._look_every)
        await wait_for(self._news, wait)
        await self._each(self._refresh(ref, gateway) for ref, gateway in pending)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _list(self) -> bool:
        observed: dict[ObjectRef, Json] = {}
        try:
            for kind in RESOURCES:
                for namespace in self._namespaces:
                    for item in await self._listed(kind, namespace):
                        metadata = item["metadata"]
                        observed[ObjectRef(kind, metadata["namespace"], metadata["name"])] = item
        except ApiError as error:
            if not error.transient:
                for gateway in (self._wanted or {}).values():
                    self._report(gateway, f"cannot list the existing objects: {error}")
            return False
        self._observed = observed
        return True

    async def _listed(self, kind: str, namespace: str) -> Iterable[Json]:
        try:
            listed = await self._api.get(collection(kind, namespace), {"labelSelector": SELECTOR})
        except ApiError as error:
            if kind in OPTIONAL and error.status in (403, 404):
                return ()
            raise
        items: Iterable[Json] = listed.get("items") or ()
        return items

    def _without_address(self) -> list[tuple[ObjectRef, DesiredGateway]]:
        pending = []
        for key, gateway in (self._wanted or {}).items():
            for name in service_specs(gateway):
                service = self._observed.get(ref := ObjectRef("Service", key.namespace, name))
                if service and service["spec"].get("type") == LOAD_BALANCER and not _ingress(service):
                    pending.append((ref, gateway))
        return pending

    async def _refresh(self, ref: ObjectRef, gateway: DesiredGateway) -> None:
        try:
            service = await self._api.get(path(*ref))
        except ApiError:
            return  # the next list will report it
        if _ingress(service):
            self._observed[ref] = service
            self._report(gateway, self._problems.get(gateway.key, ""))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _reconcile(self, due: Iterable[Key]) -> None:
        gateways = self._wanted or {}
        mine: dict[str, dict[ObjectRef, Json]] = {}
        for ref, item in self._observed.items():
            for uid in owners(item):
                mine.setdefault(uid, {})[ref] = item
        await self._each(self._gateway(gateways[key], mine.get(gateways[key].uid, {})) for key in due if key in gateways)
        await self._each(self._do(action) for action in leftovers(gateways.values(), self._observed))
        self._again &= gateways.keys()
        for key in (self._reported.keys() | self._problems.keys()) - gateways.keys():
            self._reported.pop(key, None)
            self._problems.pop(key, None)

    async def _gateway(self, gateway: DesiredGateway, mine: Mapping[ObjectRef, Json]) -> None:
        authority = self._authority()
        if authority is None:
            return
        problems, again = [], False
        for action in diff(gateway, self._site, authority, mine, self._clock()):
            try:
                again |= await self._do(action)
            except ApiError as error:
                again = True
                # An API server that does not respond proves nothing about the Gateway.
                if not error.transient:
                    problems.append(f"{action.ref.kind} {action.ref.name}: {error.message}")
        (self._again.add if again else self._again.discard)(gateway.key)
        self._report(gateway, "; ".join(problems))

    async def _do(self, action: Action) -> bool:
        """Executes an action; returns whether to retry shortly."""
        if not self._may_write():
            return True
        match action:
            case Apply():
                if action.new and await self._is_foreign(action.ref):
                    raise ApiError(409, "AlreadyExists", "it exists and is not managed by Lasthop; rename it or the Gateway")
                applied = self._observed[action.ref] = await self._api.apply(path(*action.ref), action.document)
                return bool(applied["metadata"].get("deletionTimestamp"))
            case Delete():
                try:
                    await self._api.delete(path(*action.ref), uid=action.uid)
                except ApiError as error:
                    if not error.conflict:  # 409: another object has that name now
                        return True
                self._observed.pop(action.ref, None)
        return False

    async def _is_foreign(self, ref: ObjectRef) -> bool:
        existing = await find(self._api, path(*ref))
        return existing is not None and not is_ours(existing)

    async def _each(self, jobs: Iterable[Coroutine[Any, Any, object]]) -> None:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def one(job: Coroutine[Any, Any, object]) -> None:
            async with limit:
                await job

        async with asyncio.TaskGroup() as tasks:
            for job in jobs:
                tasks.create_task(one(job))

    def _report(self, gateway: DesiredGateway, problem: str) -> None:
        key = gateway.key
        self._problems[key] = problem
        services = {name: self._observed.get(ObjectRef("Service", key.namespace, name), {}) for name in service_specs(gateway)}
        infrastructure = read_back(gateway, services, problem)
        if self._reported.get(key) != infrastructure:
            self._reported[key] = infrastructure
            self._changed(key, infrastructure)


def _ingress(service: Json) -> bool:
    return bool(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"))
