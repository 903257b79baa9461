"""Measures both systems with the same objects: starts, edits and bursts, in turn."""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

from bench.control.edits import Editor, Seen
from bench.control.systems import System
from bench.rows import Row, judged

Say = Callable[[str], None]
BURST = 100
SAMPLED = 50
"""Number of hosts requested after a start, spread over all."""


class Figures:
    """Figures of each system by name, in the order of the editors: ours first."""

    def __init__(self, size: int, peer: str) -> None:
        self._size, self._peer = size, peer
        self._seen: dict[tuple[str, str], list[float]] = {}

    def add(self, what: str, unit: str, value: float) -> None:
        self._seen.setdefault((what, unit), []).append(value)

    def rows(self) -> list[Row]:
        """A figure of one system alone is ours."""
        return [
            judged("control", what, self._size, values[0], unit, *((values[1], self._peer) if len(values) > 1 else ()))
            for (what, unit), values in self._seen.items()
        ]


@dataclasses.dataclass(frozen=True)
class Counts:
    """Number of edits; the peer's policy edits take 15 s each."""

    ours: int
    peer_policy: int
    peer: int


async def starts(editors: Sequence[Editor], figures: Figures, say: Say, *, restart: bool, keep: bool = False) -> None:
    """Starts each in turn. After a first start each is ended again, so that nothing runs beside the other, unless kept."""
    name = "restart" if restart else "first start"
    for editor in editors:
        system = editor.system
        say(f"{name}: {system.name}")
        await system.start()
        numbers = [*range(0, editor.size, max(1, editor.size // SAMPLED)), editor.size - 1]
        async with asyncio.TaskGroup() as tasks:
            if system.ready is not None:
                tasks.create_task(_until_ready(system, figures, f"{name}: serves proxies after"))
            effective = await asyncio.to_thread(editor.serves, numbers)
        figures.add(f"{name}: effective", "s", effective - system.started)
        await asyncio.to_thread(editor.quiet)
        figures.add(f"{name}: controller CPU", "s", system.cpu())
        figures.add(f"{name}: controller RSS", "MiB", system.memory())
        figures.add(f"{name}: Envoy RSS", "MiB", system.envoy_memory())
        if not (restart or keep):
            await system.stop()
            editor.probe.close()


async def _until_ready(system: System, figures: Figures, what: str) -> None:
    assert system.ready is not None
    while not await asyncio.to_thread(system.ready):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.05)
    figures.add(what, "s", time.perf_counter() - system.started)


def edits(editors: Sequence[Editor], counts: Counts, figures: Figures, say: Say) -> None:
    targets = edited(editors[0])
    for editor in editors:
        editor.rest(3)
    seen = {(editor.system.name, kind): Seen() for editor in editors for kind in ("policy", "CA", "endpoint")}
    for count in range(counts.ours):
        for place, editor in enumerate(editors):
            number = targets[count % len(targets)]
            if place and count >= counts.peer:
                continue
            say(f"edits {count + 1} of {counts.ours}: {editor.system.name}")
            if place == 0 or count < counts.peer_policy:
                editor.timed(editor.policy, number, seen[editor.system.name, "policy"])
            editor.timed(editor.endpoint, number, seen[editor.system.name, "endpoint"])
            for _ in range(2):  # it does not fit, and fits again
                editor.timed(editor.ca, number, seen[editor.system.name, "CA"])
    for kind in ("policy", "CA", "endpoint"):
        for editor in editors:
            _add(f"{kind} edit", seen[editor.system.name, kind], figures)


def policy_edits(editor: Editor, counts: Counts, figures: Figures, say: Say) -> None:
    """The edits that must not grow with the number of policies, of one system alone."""
    editor.rest(3)
    seen, targets = Seen(), edited(editor)
    for count in range(counts.ours):
        say(f"policy edits {count + 1} of {counts.ours}")
        editor.timed(editor.policy, targets[count % len(targets)], seen)
    _add("policy edit", seen, figures)


def edited(editor: Editor) -> list[int]:
    """Returns five policies, spread over all."""
    return [editor.size * (2 * n + 1) // 10 for n in range(5)]


def _add(what: str, seen: Seen, figures: Figures) -> None:
    figures.add(f"{what}: effective", "ms", median_ms(seen.effective))
    figures.add(f"{what}: effective, slowest", "ms", 1000 * max(seen.effective))
    # The mean also counts work that several edits share, such as writing a record every 5 s.
    figures.add(f"{what}: controller CPU", "ms", 1000 * statistics.fmean(seen.cpu))


def median_ms(seconds: list[float]) -> float:
    return 1000 * statistics.median(seconds)


def bursts(editors: Sequence[Editor], figures: Figures, say: Say) -> None:
    for editor in editors:
        say(f"burst: {editor.system.name}")
        cpu = editor.system.cpu()
        written, effective = editor.burst(min(BURST, editor.size))
        figures.add("burst of 100 policy edits: written", "s", written)
        figures.add("burst of 100 policy edits: all effective", "s", effective)
        editor.quiet()
        figures.add("burst of 100 policy edits: controller CPU", "s", editor.system.cpu() - cpu)
        figures.add("controller RSS after all edits", "MiB", editor.system.memory())


def shared(editors: Sequence[Editor], count: int, figures: Figures, say: Say) -> None:
    """One ConfigMap has the wrong CA of many policies, then the right one."""
    numbers, name = range(count), f"shared-{count}"
    for editor in editors:
        say(f"a CA of 100 policies: {editor.system.name}")
        editor.share_ca(numbers, name)
        figures.add("wrong CA of 100 policies put right: effective", "s", editor.shared_ca(numbers, name))
        editor.quiet()
