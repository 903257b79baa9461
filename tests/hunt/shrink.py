"""Shortens a history that ends in a violation."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace

from tests.hunt.base import BASE
from tests.hunt.gateway import replay
from tests.hunt.history import Edit, History, Step
from tests.hunt.oracle import forbidden_in_the_end

PATIENCE = 15.0
KEPT = {edit.path for edit in BASE}


def shrink(history: History, kind: str, seconds: float) -> tuple[History, str]:
    """Returns the shortest history found within the time whose last step fails in the same way, and why it fails; empty if not
    even the whole one failed again."""
    end, best, why = time.monotonic() + seconds, history, ""
    candidates = _shorter(best)
    while time.monotonic() < end:
        candidate = next(candidates, None)
        if candidate is None:
            break
        if not forbidden_in_the_end(candidate) and not candidate.steps[-1].whole:
            continue
        failed, problem = replay(candidate, PATIENCE)
        if problem[:9] == kind[:9]:
            best, why = replace(candidate, steps=candidate.steps[: failed + 1]), problem
            candidates = _shorter(best)
    return best, why


def _shorter(history: History) -> Iterator[History]:
    """Yields a start on the folder's content shortly before the end; then histories without a step; then without an edit;
    then the simplest delivery."""
    steps = history.steps
    for kept in (1, 2, 3, 5, 8, 12, 20):
        if kept + 1 < len(steps) and (begun := _snapshot(steps[:-kept])):
            yield replace(history, steps=(begun, *steps[-kept:]))
    for n in range(len(steps) - 2, 0, -1):
        if steps[n].folder:
            continue
        yield replace(history, steps=(*steps[:n], *steps[n + 1 :]))
    for n, step in enumerate(steps):
        for edit in step.edits if len(step.edits) > 1 else ():
            if edit.path in KEPT:
                continue
            fewer = replace(step, edits=tuple(kept_edit for kept_edit in step.edits if kept_edit is not edit))
            yield replace(history, steps=(*steps[:n], fewer, *steps[n + 1 :]))
        if n and (step.process or step.lose) and step.edits:
            yield replace(history, steps=(*steps[:n], replace(step, process="", lose=""), *steps[n + 1 :]))
        if n and step.via == "release":
            yield replace(history, steps=(*steps[:n], replace(step, via="write"), *steps[n + 1 :]))
    if history.linked:
        yield replace(history, linked=False)


def _snapshot(steps: tuple[Step, ...]) -> Step | None:
    """Returns one step that writes the folder that these steps leave; None if a write cannot reproduce it."""
    texts: dict[str, Edit] = {}
    for step in steps:
        if step.via == "data" or step.folder == "away":
            return None
        for edit in step.edits:
            before = texts.pop(edit.path, None)
            if edit.to:
                if before:
                    texts[edit.to] = replace(before, path=edit.to)
            elif edit.text is not None or edit.odd:
                texts[edit.path] = edit
    return Step(tuple(texts.values()), process="term", why="start") if texts else None
