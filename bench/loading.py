"""Creates many objects on an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from conformance.api import Api, Object

AT_ONCE = 24
"""Objects being created at the same time."""


async def create(api: Api, documents: Iterable[Object]) -> int:
    """Returns how many there were."""
    remaining, created = iter(documents), 0

    async def worker() -> None:
        nonlocal created
        for document in remaining:
            path = (await api.path(document)).rpartition("/")[0]
            await api.create(path, document)
            created += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(worker())
    return created
