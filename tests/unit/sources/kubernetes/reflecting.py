"""Provides a reflector against the API server of a test, with short pauses, and a sink that records its calls."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lasthop.base.api.kinds import KINDS, Kind
from lasthop.base.api.meta import Key, Object
from lasthop.edge.kubernetes.client import path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.edge.kubernetes.objects import DecodedObject
from lasthop.edge.sources.kubernetes.reflector import Reflector, WatchTiming
from tests.fake_api import FakeApi, client_of

FAST = WatchTiming(idle=2.0, first_pause=0.001, longest_pause=0.02)


class Memory:
    """A sink that keeps its calls."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.log: list[str] = []
        self.wholes = 0
        self.names_when_whole: list[str] = []
        self.error: ApiError | None = None
        self.errors: list[ApiError] = []
        self.ended: Counter[str] = Counter()
        """Why requests ended."""

    def read(self, kind: Kind, reads: list[DecodedObject], deleted: list[Key]) -> None:
        changes = {read.key: read.object for read in reads}
        for key in deleted:
            changes[key] = None
            self.log.append(f"-{key.name}")
        self.log += [f"+{read.key.name}" for read in reads]
        for key, obj in changes.items():
            if obj is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = obj

    def whole(self, reflector: Reflector) -> None:
        self.wholes += 1
        self.names_when_whole = self.names

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        self.error = error
        if error is not None:
            self.errors.append(error)

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.objects)


@asynccontextmanager
async def reflecting(api: FakeApi, kind: str, timing: WatchTiming = FAST) -> AsyncIterator[tuple[Reflector, Memory]]:
    memory, kind_info = Memory(), KINDS[kind]
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        path = path_of(kind_info.group, kind_info.versions[0], kind_info.plural)
        reflector = Reflector(kind_info, client, path, memory, timing, ended=lambda reason: memory.ended.update([reason]))
        task = tasks.create_task(reflector.run())
        yield reflector, memory
        task.cancel()
