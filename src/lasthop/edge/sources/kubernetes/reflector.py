"""Lists one kind (in one namespace, or in all) and keeps watching it.

                 ┌───────────── 410, or any list older than the known state ───────────┐
                 v                                                                     │
  read all: streaming list ─(not supported)─> pages     ──>     follow: watch from the version we have ──┐
                                                                  ^    end, reset, silence: again        │
                                                                  └──────────────────────────────────────┘

Objects are deleted only when the server reports it, by an event or by a complete list. A server that does not respond deletes
nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final, Protocol

import msgspec

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Key
from lasthop.edge.kubernetes.client import PAGE, Client
from lasthop.edge.kubernetes.errors import RESET, SILENT, ApiError
from lasthop.edge.kubernetes.objects import DecodedObject, ListMeta, ObjectList, identify, read_object, selector
from lasthop.edge.kubernetes.observed import older
from lasthop.edge.kubernetes.ratelimit import Backoff

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
STALE: Final = "Stale"
STALE_LISTS: Final = 5
"""Number of consecutive lists older than the known state after which they are accepted, because etcd was restored from a
backup."""


class WatchTiming(msgspec.Struct, frozen=True):
    idle: float = 70.0
    """Seconds without data after which a watch counts as dead. Bookmarks arrive every 60 s, and the server keeps 75 s of
    events."""
    lifetime: float = 300.0
    """Minimum requested lifetime of a watch; the maximum is twice that, so that not all end at once."""
    settled: float = 5.0
    """Seconds after which a watch counts as healthy, so that the next failure counts as the first again."""
    first_pause: float = 0.2
    longest_pause: float = 5.0
    """Seconds between attempts while the server does not respond. client-go's 30 s are too long for a gateway."""
    page: int = PAGE
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.monotonic


class ReflectorSink(Protocol):
    def read(self, kind: Kind, reads: list[DecodedObject], deleted: list[Key]) -> None:
        """Receives new or changed objects, and deleted ones."""

    def whole(self, reflector: Reflector) -> None:
        """Called when everything has been read and delivered."""

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        """Receives the error that prevents reading; None once it is resolved."""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: ListMeta


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _PartialList:
    """Collects a list, which counts only when it is complete."""

    def __init__(self) -> None:
        self.keys: dict[Key, str] = {}
        self.reads: list[DecodedObject] = []


class Reflector:
    def __init__(
        self,
        kind: Kind,
        client: Client,
        path: str,
        sink: ReflectorSink,
        timing: WatchTiming | None = None,
        read: Callable[[str, msgspec.Raw], DecodedObject] = read_object,
        ended: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """`ended` receives the reason for the end of each request."""
        self.kind, self.path = kind, path
        self.known: dict[Key, str] = {}
        """Versions by object."""
        self.version = ""
        """The version to continue from; empty while everything must be listed."""
        self._client, self._sink, self._timing, self._read = client, sink, timing or WatchTiming(), read
        self._ended = ended
        self._backoff = Backoff(self._timing.first_pause, self._timing.longest_pause)
        self._relists = Backoff(self._timing.first_pause, self._timing.longest_pause)
        """Back-off of lists after an expired version. It is separate, because after a long outage our version has always
        expired, although the server responds now."""
        self._newest = ""
        self._stale_lists = 0
        self._failures = 0
        self._streaming = True

    def __repr__(self) -> str:
        return f"<Reflector {self.path} at {self.version or 'nothing'}, {len(self.known)} objects>"

    async def run(self) -> None:
        """Sends requests endlessly, with a pause that depends on the end of the last one."""
        while True:
            started = self._timing.clock()
            try:
                await self._request()
                error = None
            except ApiError as failure:
                error = failure
            except msgspec.DecodeError as failure:
                error = ApiError(0, RESET, f"the response cannot be decoded: {failure}")
            pause = self._pause(error, lived=self._timing.clock() - started)
            await self._timing.sleep(pause)

    def _pause(self, error: ApiError | None, lived: float) -> float:
        """Decides how to continue after a request, and when."""
        if lived >= self._timing.settled:
            self._progress()
        # 1. The server ended the watch, as it does every few minutes: continue at the same version.
        if error is None:
            self._ended("end")
            return self._backoff.next() if lived < self._timing.settled else 0.0
        self._ended((error.reason if not error.status else str(error.status)).lower())
        # 2. Our version has expired: list everything, which also shows what was deleted meanwhile.
        if error.expired:
            self.version = ""
            return self._relists.next()
        # 3. The server does not support streaming lists, or cannot serve one now (429, "storage is (re)initializing", for
        #    many seconds after a CRD was changed): list in pages, at once.
        if not self.version and self._streaming and (error.status in (400, 405, 422, 429) or error.reason == SILENT):
            self._streaming = False
            return 0.0
        # 4. The server does not respond, or denies access: the known state stays. A denial is reported at once, another
        #    failure from the second time.
        self._failures += 1
        if self._failures > 1 or not error.transient:
            self._sink.trouble(self, error)
        return self._backoff.next(at_least=error.retry_after)

    def has(self, key: Key, version: str) -> bool:
        """Returns whether this version of an object, or a later one, has been delivered.

        A watch delivers in the order of versions, so everything older than its last event has been delivered, including
        deletions.
        """
        known_version = self.known.get(key, "")
        return bool(version) and (
            known_version == version
            or older(version, known_version)
            or (self.version.isdecimal() and version.isdecimal() and not older(self.version, version))
        )

    # --- one request -------------------------------------------------------------------------------------------------

    async def _request(self) -> None:
        if not self.version and not self._streaming:
            await self._list()
        await self._watch()

    async def _list(self) -> None:
        reading, version = _PartialList(), ""
        async with aclosing(self._client.pages(self.path, selector(self.kind.kind), self._timing.page)) as pages:
            async for page in pages:
                content = msgspec.json.decode(page, type=ObjectList)
                version = content.metadata.resource_version
                for item in content.items or ():
                    self._add(reading, item)
                await asyncio.sleep(0)  # lets other tasks run between two pages of a large list
        self._replace(reading, version)

    async def _watch(self) -> None:
        """Watches until the server ends it. Without a version the watch begins with all objects."""
        reading = None if self.version else _PartialList()
        async with aclosing(self._client.watch(self.path, self._watch_params(), self._timing.idle)) as lines:
            async for line in lines:
                if not line:
                    self._opened()
                    continue
                event = msgspec.json.decode(line, type=_Event)
                match event.type:
                    case "BOOKMARK":
                        meta = msgspec.json.decode(event.object, type=_Bookmark).metadata
                        if reading is None:
                            self._advance(meta.resource_version)
                        elif meta.annotations.get(INITIAL_EVENTS_END) == "true":
                            self._replace(reading, meta.resource_version)
                            reading = None
                    case "ERROR":
                        status = msgspec.json.decode(event.object, type=_Status)
                        raise ApiError(status.code, status.reason, status.message)
                    case "ADDED" if reading is not None:
                        self._add(reading, event.object)
                    case "ADDED" | "MODIFIED" | "DELETED" if reading is None:
                        self._apply_event(event.type, event.object)
        if reading is not None:
            raise ApiError(0, SILENT, "the watch ended before the initial list was complete")

    def _watch_params(self) -> dict[str, str]:
        lifetime = int(self._timing.lifetime * random.uniform(1, 2))
        params = {"allowWatchBookmarks": "true", "timeoutSeconds": str(lifetime), **selector(self.kind.kind)}
        if self.version:
            return {**params, "resourceVersion": self.version}
        return {**params, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "resourceVersion": ""}

    # --- events ------------------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._failures = 0
        self._sink.trouble(self, None)

    def _add(self, reading: _PartialList, content: msgspec.Raw) -> None:
        key, version = identify(self.kind.kind, content)
        reading.keys[key] = version
        if self.known.get(key) != version:
            reading.reads.append(self._read(self.kind.kind, content))

    def _replace(self, reading: _PartialList, version: str) -> None:
        """Replaces the known state with a complete list, which also reveals deletions."""
        if older(version, self._newest) and self._stale_lists < STALE_LISTS:
            # A lagging server behind a load balancer may not have the newest policy yet.
            self._stale_lists += 1
            raise ApiError(0, STALE, f"the list at {version} is older than the known version {self._newest}")
        self._stale_lists = 0
        deleted = [key for key in self.known if key not in reading.keys]
        self.known = reading.keys
        self.version = self._newest = version
        if reading.reads or deleted:
            self._sink.read(self.kind, reading.reads, deleted)
        self._opened()
        self._sink.whole(self)

    def _apply_event(self, type: str, content: msgspec.Raw) -> None:
        key, version = identify(self.kind.kind, content)
        self._advance(version)
        if older(version, self.known.get(key, "")):
            return
        if type == "DELETED":
            self.known.pop(key, None)
            self._sink.read(self.kind, [], [key])
        else:
            decoded = self._read(self.kind.kind, content)
            self.known[key] = version
            self._sink.read(self.kind, [decoded], [])

    def _progress(self) -> None:
        self._backoff.reset()
        self._relists.reset()

    def _advance(self, version: str) -> None:
        self._progress()
        self.version = version
        if not older(version, self._newest):
            self._newest = version
