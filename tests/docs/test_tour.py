"""The tour names files and functions: all of them exist, and an edit calls them in the tour's order."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from lasthop.edge.proxy.binary import Envoy
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.outputs.envoy.resource import CLUSTER
from lasthop.run.host import HostRuntime
from lasthop.run.loop import run
from tests.folders import good_folder, policy
from tests.xds_client import Proxy, proxy
from tests.xds_envoy import short_directory, until

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lasthop"
TOUR = (ROOT / "docs" / "tour.md").read_text()
PLACE = re.compile(r"`(?P<file>[\w/]+\.py)`: (?P<names>`\w+`(?:, `\w+`)*)")
STEP = re.compile(r"^\| (\d+) \| (.*)$", re.MULTILINE)
IN_A_CLUSTER = {23, 24}
STATUS = range(21, 25)
"""On the way to the status, which is worked out while Envoy is told and answers: neither waits for the other."""
VALUES = {9}
"""Not called: a struct without code of its own."""


@cache
def defined(file: str) -> set[str]:
    tree = ast.walk(ast.parse((SOURCE / file).read_text()))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


def places(text: str) -> list[tuple[str, str]]:
    return [(place["file"], name) for place in PLACE.finditer(text) for name in re.findall(r"`(\w+)`", place["names"])]


def test_every_function_of_the_tour_exists() -> None:
    found = places(TOUR)
    assert len(found) > 40
    assert not [(file, name) for file, name in found if name not in defined(file)]


def test_every_file_and_room_of_the_tour_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", TOUR)) - {"src/lasthop/"}
    assert len(named) > 40
    assert not [path for path in named if not (SOURCE / path).exists()]


class Calls:
    """When each function, or a method of each class, was called."""

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], list[int]] = {}
        self._number = 0

    def begin(self) -> None:
        self.times = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            self._number += 1
            file = frame.f_code.co_filename.removeprefix(f"{SOURCE}/")
            for name in frame.f_code.co_qualname.split("."):
                self.times.setdefault((file, name), []).append(self._number)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


async def told(envoy: Proxy, hostname: str) -> Any:
    """Returns the answer to an edit. Where an edit is settled in parts, the rest of the one before comes first."""
    while True:
        answer = await envoy.hear()
        if answer.resources and all(hostname.encode() in each.resource.value for each in answer.resources):
            return answer
        await envoy.ask(CLUSTER, answer.nonce)


async def edited_policy(directory: Path, calls: Calls) -> None:
    """Runs a controller on a folder, edits a policy in it, and acknowledges what comes of that."""
    folder = good_folder(directory / "objects")
    controller = HostRuntime(FilesSource(folder), Envoy(Path("/no/envoy"), (1, 40, 0)), directory / "run").controller
    await controller.server.start(directory / "ads.sock")
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run(controller))
        await until(controller.loaded.is_set)
        controller.server.open()
        async with proxy(directory / "ads.sock", "shop/web") as envoy:
            await envoy.ask(CLUSTER)
            await envoy.ask(CLUSTER, (await envoy.hear()).nonce)
            for hostname in ("first.internal", "second.internal"):  # with the first, whatever the start has left is over
                await until(lambda: not controller.dirty.is_set() and not controller.engine.unsettled)
                calls.begin()
                (directory / "policy.yaml").write_text(policy().replace("api.internal", hostname))
                (directory / "policy.yaml").rename(folder / "policy.yaml")
                answer = await told(envoy, hostname)
                await until(lambda: ("engine/outputs/status/policies.py", "policy_report") in calls.times)
                await envoy.ask(CLUSTER, answer.nonce)
                await until(lambda: ("run/fleet.py", "acked") in calls.times)
        running.cancel()


def test_an_edited_policy_goes_through_the_steps_of_the_tour_in_their_order() -> None:
    calls = Calls()
    with short_directory() as directory, calls.recorded():
        asyncio.run(edited_policy(directory, calls))
    steps = {int(number): places(text) for number, text in STEP.findall(TOUR)}
    called = {step: [calls.times[place] for place in named if place in calls.times] for step, named in steps.items()}
    assert {step for step, times in called.items() if not times} == IN_A_CLUSTER | VALUES
    to_envoy = [step for step in steps if step < STATUS.start]
    to_the_status = [step for step in steps if step < 17 or step in STATUS]
    back = [step for step in steps if step >= STATUS.stop]
    for way in (to_envoy, to_the_status, back):
        now = 0
        for step in way:
            # The last function of a step: the first may be what calls the step before. A clock that ticks may have called some
            # of them before the edit.
            after = [time for time in (called[step][-1] if called[step] else [now + 1]) if time > now]
            assert after, f"step {step} comes before the one above it"
            now = min(after)
