"""Proves that no BackendTLSPolicy names a port, by a list of the policies that is requested after the port appeared.

    ask(ports) ──> consistent list, metadata only ──> the watch has delivered every listed policy ──> proven
                       │ and the CRD is not being deleted     └─ not yet: wait for it
                       └─ an error: not proven; report the error, retry with back-off

Each kind has its own watch, so a route may be read before an older policy. A list without a resourceVersion contains
everything that was written before the request. One list serves all waiting ports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.errors import RESET, ApiError
from lasthop.edge.kubernetes.objects import POLICY
from lasthop.edge.kubernetes.ratelimit import Backoff
from lasthop.edge.sources.kubernetes.discovery import CRDS, METADATA
from lasthop.edge.sources.kubernetes.reflector import Reflector, WatchTiming
from lasthop.engine.plan import reasons
from lasthop.engine.plan.knowledge import Port, Proofs

METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
BEHIND: Final = "Behind"
CATCH_UP: Final = 5.0
"""Seconds in which the watch must deliver the listed policies. Then everything is listed again."""
KIND: Final = KINDS[POLICY]

Reading = tuple[str, Mapping[str, Reflector]]
"""The version of the watched policies, and their reflectors by namespace; empty: all namespaces."""


class _PolicyMeta(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _Item(msgspec.Struct):
    metadata: _PolicyMeta


class _PolicyPage(msgspec.Struct):
    items: list[_Item] | None = None


class Prover:
    def __init__(
        self,
        client: Client,
        reading: Callable[[], Reading | None],
        changed: Callable[[], None],
        timing: WatchTiming,
    ) -> None:
        """`reading` returns the current reading of policies, or None if their kind is absent; it raises `ApiError` while
        neither is known. `changed` is called when there are proofs, or another error."""
        self.error: ApiError | None = None
        """The error that prevented the last proof."""
        self.heard = asyncio.Event()
        """Set when policies have been read."""
        self._client, self._reading, self._changed = client, reading, changed
        self._backoff, self._sleep = Backoff(timing.first_pause, timing.longest_pause), timing.sleep
        self._awaiting: Proofs = {}
        self._proven: dict[Port, int] = {}
        self._requested = asyncio.Event()

    def ask(self, ports: Proofs) -> None:
        """Replaces the ports that wait for a proof."""
        self._awaiting = dict(ports)
        self._requested.set()

    def take(self) -> Proofs:
        """Returns the proofs since the last call."""
        proven, self._proven = self._proven, {}
        return proven

    async def run(self) -> None:
        while True:
            await self._requested.wait()
            self._requested.clear()
            waiting = self._awaiting  # without ports that arrive after the request is sent
            errors = await self._prove(waiting) if waiting else []
            if pause := self.report(*errors):
                await self._sleep(pause)
                self._requested.set()

    async def _prove(self, waiting: Proofs) -> list[ApiError]:
        """Proves as many ports as possible; returns the errors for the other ports. A namespace that may not be read does not
        affect others."""
        scopes = self._scopes({port[0].namespace for port in waiting})
        results = await asyncio.gather(*(self._attempt(scope) for scope in scopes))
        for scope, error in zip(scopes, results, strict=True):
            if error is None:
                self._set_proven({port: number for port, number in waiting.items() if scope in ("", port[0].namespace)})
        if self._proven:
            self._changed()
        return [error for error in results if error is not None]

    def _set_proven(self, ports: Proofs) -> None:
        self._proven |= ports
        self._awaiting = {port: number for port, number in self._awaiting.items() if ports.get(port) != number}

    def report(self, *errors: ApiError) -> float:
        """Records the errors of a request, if any, and returns the pause before the next one. A single transient failure is
        not reported."""
        reported = errors[0] if errors and (self._backoff.failures or not errors[0].transient) else None
        if str(reported) != str(self.error):
            self.error = reported
            self._changed()
        if not errors:
            self._backoff.reset()
            return 0.0
        return self._backoff.next(at_least=max(error.retry_after for error in errors))

    def _scopes(self, namespaces: Iterable[str]) -> list[str]:
        """Returns the scopes of the lists to request: the namespace if there is only one, otherwise all namespaces."""
        names = sorted(namespaces)
        try:
            reading = self._reading()
        except ApiError:
            return [""]
        restricted = reading is not None and "" not in reading[1]
        return names if restricted or len(names) < 2 else [""]

    async def _attempt(self, scope: str) -> ApiError | None:
        try:
            await self.check(scope)
        except ApiError as error:
            return error
        return None

    async def check(self, scope: str) -> None:
        """Returns once every policy of a namespace (empty: of all) that existed at the call has been read. Raises `ApiError`
        if that cannot be established."""
        reading = self._reading()
        if reading is None:
            await self._without_kind()
            return
        version, reflectors = reading
        reflector = reflectors.get(scope) or reflectors.get("")
        if reflector is None:
            raise ApiError(0, BEHIND, f"namespace {scope} is not watched")
        missing = await self._list(path_of(KIND.group, version, KIND.plural, scope))
        await self._not_ending()
        try:
            async with asyncio.timeout(CATCH_UP):
                while missing := [policy for policy in missing if not reflector.has(*policy)]:
                    self.heard.clear()
                    await self.heard.wait()
        except TimeoutError:
            message = f"the watch has not delivered {missing[0][0]} ({len(missing)} in all), which a list shows"
            raise ApiError(0, BEHIND, message) from None

    async def _list(self, path: str) -> list[tuple[Key, str]]:
        policies: list[tuple[Key, str]] = []
        try:
            async with aclosing(self._client.pages(path, accept=METADATA_LIST)) as pages:
                async for page in pages:
                    metas = [item.metadata for item in msgspec.json.decode(page, type=_PolicyPage).items or ()]
                    policies += [(Key(POLICY, meta.namespace, meta.name), meta.resource_version) for meta in metas]
        except msgspec.DecodeError as error:
            raise ApiError(0, RESET, f"the response cannot be decoded: {error}") from error
        return policies

    async def _not_ending(self) -> None:
        """Raises while the CRD is being deleted, because the server deletes the policies first, perhaps only to replace the
        CRD."""
        crd = await self._crd()
        if crd is None or (crd.get("metadata") or {}).get("deletionTimestamp"):
            raise ApiError(0, reasons.NOT_SERVED, f"the CRD of {POLICY} is being deleted")

    async def _without_kind(self) -> None:
        if await self._crd() is not None:
            raise ApiError(0, BEHIND, f"the CRD of {POLICY} exists, and its objects have not been read yet")

    async def _crd(self) -> Json | None:
        try:
            return await self._client.get(f"{CRDS}/{KIND.plural}.{KIND.group}", accept=METADATA)
        except ApiError as error:
            if error.not_found:
                return None
            raise ApiError(0, error.reason, f"whether the CRD of {POLICY} exists cannot be determined: {error}") from error
