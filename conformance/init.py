"""Runs as process 1 of the cluster's namespaces: starts the cluster, runs the requested command, and exits; the kernel cleans
up."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from conformance.api import ApiError
from conformance.build import paths
from conformance.children import ChildError, say
from conformance.cluster import Cluster
from conformance.preflight import Missing
from conformance.releases import CURRENT, RELEASES
from conformance.sandbox import STOPPED

Scenario = Callable[[Cluster, dict[str, Any]], Awaitable[int]]


def main() -> int:
    order = json.loads(sys.argv[1])
    module, _, name = order["target"].partition(":")
    scenario: Scenario = getattr(importlib.import_module(module), name)
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        return asyncio.run(_run(scenario, order))
    return STOPPED


async def _run(scenario: Scenario, order: dict[str, Any]) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    arguments = order["arguments"]
    options = dict(arguments.get("cluster", {}))
    release = RELEASES[options.pop("suite", CURRENT.version)]
    forwarded = socket.socket(fileno=order["forwarded"])
    cluster = Cluster(Path(order["folder"]), paths(release), forwarded, release, **options)
    try:
        async with cluster:
            return await scenario(cluster, arguments)
    except* (ChildError, ApiError, Missing) as group:
        for error in _leaves(group):
            say(f"{type(error).__name__}: {error}")
    except* Exception as group:
        traceback.print_exception(group)
    return 1


def _leaves(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for error in group.exceptions for leaf in _leaves(error)]
    return [group]


if __name__ == "__main__":
    sys.exit(main())
