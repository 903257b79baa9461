"""What the tests of the Kubernetes source share: objects, a fast clockwork, a sink that remembers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from lasthop.api.kinds import CONTROLLER_NAME, KINDS, Kind
from lasthop.api.meta import Key, Object
from lasthop.api.routes import ParentReference
from lasthop.api.status import ConditionStatus, ParentStatus
from lasthop.kubernetes.client import path_of
from lasthop.kubernetes.errors import ApiError
from lasthop.kubernetes.objects import Read, gone
from lasthop.sources.kubernetes.reflector import Reflector, Timing
from tests.fake_api import FakeApi, client_of

FAST = Timing(idle=2.0, first_pause=0.001, longest_pause=0.02)

Json = dict[str, Any]
BEFORE = "2026-01-01T00:00:00Z"


def mk_route(name: str, namespace: str = "shop", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"parentRefs": [{"name": "gw"}], **spec}}


def mk_config_map(name: str, namespace: str = "shop", **data: str) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def mk_policy(name: str, service: str = "erp", namespace: str = "shop", **more: Any) -> Json:
    target = {"group": "", "kind": "Service", "name": service}
    validation = {"hostname": "erp.example.com", "wellKnownCACertificates": "System"}
    spec = {"targetRefs": [target], "validation": validation, **more}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def mk_condition(type: str = "Accepted", status: str = "True", generation: int = 1, message: str = "") -> ConditionStatus:
    return ConditionStatus(type, status, type, message, generation)


def mk_parent(name: str, *conditions: ConditionStatus, section: str = "", kind: str = "Gateway") -> ParentStatus:
    ref = ParentReference(name, kind=kind, namespace="shop", section_name=section)
    return ParentStatus(ref, CONTROLLER_NAME, conditions or (mk_condition(),))


def foreign(field: str, name: str) -> Json:
    """As another controller writes it, with fields that we have never heard of."""
    condition = {"type": "Accepted", "status": "Unknown", "reason": "Seeded", "lastTransitionTime": BEFORE, "newField": [1]}
    return {field: {"name": name}, "controllerName": "example.com/other", "conditions": [condition], "extra": {"a": None}}


class Clock:
    """Time that stands still unless the test moves it."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Memory:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.log: list[str] = []
        self.wholes = 0
        self.error: ApiError | None = None
        self.errors: list[ApiError] = []

    def read(self, kind: Kind, reads: list[Read], deleted: list[Key]) -> None:
        changes = {key: obj for read in reads for key, obj in read.changes.items()}
        for key in deleted:
            changes.update(gone(key))
            self.log.append(f"-{key.name}")
        self.log += [f"+{read.key.name}" for read in reads]
        for key, obj in changes.items():
            if obj is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = obj

    def whole(self, reflector: Reflector) -> None:
        self.wholes += 1

    def trouble(self, reflector: Reflector, error: ApiError | None) -> None:
        self.error = error
        if error is not None:
            self.errors.append(error)

    @property
    def names(self) -> list[str]:
        return sorted(key.name for key in self.objects)


@asynccontextmanager
async def reflecting(api: FakeApi, kind: str, timing: Timing = FAST) -> AsyncIterator[tuple[Reflector, Memory]]:
    memory, found = Memory(), KINDS[kind]
    async with client_of(api) as client, asyncio.TaskGroup() as tasks:
        reflector = Reflector(found, client, path_of(found.group, found.versions[0], found.plural), memory, timing)
        task = tasks.create_task(reflector.run())
        yield reflector, memory
        task.cancel()
