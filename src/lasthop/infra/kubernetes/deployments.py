"""Proxies as Deployments of the cluster: `want()` says what is to be there, `run()` sees to it while this replica leads.

want ──> actions (pure) ──> apply, delete ──> Services' addresses ──> changed(Gateway, Infrastructure)
             ^── all that carries our labels, listed now and then and kept up to date by our own writes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from lasthop.api.documents import Json
from lasthop.api.meta import Key
from lasthop.infra.kubernetes import names
from lasthop.infra.kubernetes.actions import Action, Apply, Delete, Made, actions, is_ours, leftovers, owners
from lasthop.infra.kubernetes.api import Api, collection, path
from lasthop.infra.kubernetes.manifests import RESOURCES
from lasthop.infra.kubernetes.services import LOAD_BALANCER, read_back, service_specs
from lasthop.infra.kubernetes.wanted import Site, Wanted
from lasthop.kubernetes.errors import ApiError
from lasthop.pki.authority import Authority
from lasthop.plan.infrastructure import Infrastructure

RESYNC: Final = 30.0
"""Seconds after which everything is listed again: for what was deleted by others, addresses that changed, certificates."""
RETRY: Final = 5.0
LOOK_EVERY: Final = 1.0
"""For the address of a load balancer that is still to come."""
IN_FLIGHT: Final = 4
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
        look_every: float = LOOK_EVERY,
    ) -> None:
        """`namespaces` are those that we may see; none named: all of them. `may_write` is asked right before each write: a
        process that was frozen for a while leads no more, and has not heard of it."""
        self._may_write = may_write
        self._api, self._site, self._authority, self._changed = api, site, authority, changed
        self._namespaces = namespaces or ("",)
        self._clock, self._retry, self._look_every = clock, retry, look_every
        self._wanted: Mapping[Key, Wanted] | None = None
        self._observed: dict[Made, Json] = {}
        self._problems: dict[Key, str] = {}
        self._told: dict[Key, Infrastructure] = {}
        self._due: set[Key] = set()
        self._again: set[Key] = set()
        """To be tried again shortly."""
        self._news = asyncio.Event()

    def want(self, gateways: Mapping[Key, Wanted]) -> None:
        """All Gateways that are ours. What was made for others is taken away."""
        old = self._wanted or {}
        self._due |= {key for key, gateway in gateways.items() if old.get(key) != gateway}
        if self._wanted is None or gateways.keys() != old.keys() or self._due:
            self._news.set()
        self._wanted = dict(gateways)

    async def run(self) -> None:
        """Until it is cancelled, which is what is to be done when another replica leads. May be called again."""
        self._told.clear()
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
            await self._wait(self._look_every)

    async def _pause(self, listed: float) -> None:
        """Until there is something to do."""
        wait = max(0.0, listed + RESYNC - self._clock())
        if self._again:
            self._due |= self._again
            wait = min(wait, self._retry)
        if pending := self._without_address():
            wait = min(wait, self._look_every)
        await self._wait(wait)
        await self._each(self._refresh(made, gateway) for made, gateway in pending)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _list(self) -> bool:
        observed: dict[Made, Json] = {}
        try:
            for kind in RESOURCES:
                for namespace in self._namespaces:
                    found = await self._api.get(collection(kind, namespace), {"labelSelector": SELECTOR})
                    for item in found.get("items") or ():
                        metadata = item["metadata"]
                        observed[Made(kind, metadata["namespace"], metadata["name"])] = item
        except ApiError as error:
            if not error.passing:
                for gateway in (self._wanted or {}).values():
                    self._tell(gateway, f"what is there cannot be read: {error}")
            return False
        self._observed = observed
        return True

    def _without_address(self) -> list[tuple[Made, Wanted]]:
        found = []
        for key, gateway in (self._wanted or {}).items():
            for name in service_specs(gateway):
                service = self._observed.get(made := Made("Service", key.namespace, name))
                if service and service["spec"].get("type") == LOAD_BALANCER and not _ingress(service):
                    found.append((made, gateway))
        return found

    async def _refresh(self, made: Made, gateway: Wanted) -> None:
        try:
            found = await self._api.get(path(*made))
        except ApiError:
            return  # the next listing will say
        if _ingress(found):
            self._observed[made] = found
            self._tell(gateway, self._problems.get(gateway.key, ""))

    # --- writing -----------------------------------------------------------------------------------------------------

    async def _reconcile(self, due: Iterable[Key]) -> None:
        wanted = self._wanted or {}
        mine: dict[str, dict[Made, Json]] = {}
        for made, item in self._observed.items():
            for uid in owners(item):
                mine.setdefault(uid, {})[made] = item
        await self._each(self._gateway(wanted[key], mine.get(wanted[key].uid, {})) for key in due if key in wanted)
        await self._each(self._do(action) for action in leftovers(wanted.values(), self._observed))
        self._again &= wanted.keys()
        for key in (self._told.keys() | self._problems.keys()) - wanted.keys():
            self._told.pop(key, None)
            self._problems.pop(key, None)

    async def _gateway(self, gateway: Wanted, mine: Mapping[Made, Json]) -> None:
        authority = self._authority()
        if authority is None:
            return
        problems, again = [], False
        for action in actions(gateway, self._site, authority, mine, self._clock()):
            try:
                again |= await self._do(action)
            except ApiError as error:
                again = True
                # A server that is away is no news about the Gateway.
                if not error.passing:
                    problems.append(f"{action.made.kind} {action.made.name}: {error.message}")
        (self._again.add if again else self._again.discard)(gateway.key)
        self._tell(gateway, "; ".join(problems))

    async def _do(self, action: Action) -> bool:
        """Whether it is to be looked at again shortly."""
        if not self._may_write():
            return True
        match action:
            case Apply():
                if action.new and await self._is_somebodys(action.made):
                    raise ApiError(409, "AlreadyExists", "it exists and is not Lasthop's; rename it, or the Gateway")
                applied = self._observed[action.made] = await self._api.apply(path(*action.made), action.document)
                return bool(applied["metadata"].get("deletionTimestamp"))
            case Delete():
                try:
                    await self._api.delete(path(*action.made), uid=action.uid)
                except ApiError as error:
                    if not error.conflict:  # 409: there is another one of that name by now
                        return True
                self._observed.pop(action.made, None)
        return False

    async def _is_somebodys(self, made: Made) -> bool:
        try:
            return not is_ours(await self._api.get(path(*made)))
        except ApiError as error:
            if error.not_found:
                return False
            raise

    async def _each(self, jobs: Iterable[Coroutine[Any, Any, object]]) -> None:
        limit = asyncio.Semaphore(IN_FLIGHT)

        async def one(job: Coroutine[Any, Any, object]) -> None:
            async with limit:
                await job

        async with asyncio.TaskGroup() as tasks:
            for job in jobs:
                tasks.create_task(one(job))

    def _tell(self, gateway: Wanted, problem: str) -> None:
        key = gateway.key
        self._problems[key] = problem
        services = {name: self._observed.get(Made("Service", key.namespace, name), {}) for name in service_specs(gateway)}
        found = read_back(gateway, services, problem)
        if self._told.get(key) != found:
            self._told[key] = found
            self._changed(key, found)


def _ingress(service: Json) -> bool:
    return bool(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"))
