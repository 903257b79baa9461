"""`python -m bench.walk`: the files, functions and calls that an edit of a policy takes, from the saved file to the xDS cache.

No clock: the counts are the same on every machine. They measure how much code a reader has to follow.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import lasthop
from bench.folder import Folder
from examples.quickstart.certificates import Issued
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.engine import Engine
from lasthop.run.controller import Controller

ROOT = f"{Path(lasthop.__file__).parent}/"


class Walk:
    """The calls of functions of this project, by file and name."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            self.calls[code.co_filename.removeprefix(ROOT), code.co_qualname] += 1

    def figures(self, *rooms: str) -> str:
        """Counts those in modules whose path begins so."""
        calls = {place: count for place, count in self.calls.items() if place[0].startswith(rooms)}
        return f"{len({file for file, _ in calls}):4} files {len(calls):5} functions {sum(calls.values()):6,} calls"


async def walk(folder: Folder) -> Walk:
    source, calls = FilesSource(folder.path), Walk()
    controller = Controller(source, Engine(now=time.time()), lambda: None, [])
    batches = aiter(source.batches())
    threading.setprofile(calls)  # files are read in a thread
    sys.setprofile(calls)
    try:
        controller.take(await anext(batches))
        controller.settle()
        for edition in (1, 2):  # the first edit creates the objects that are created once
            calls.calls.clear()
            folder.edit(dataclasses.replace(folder.sets[0], edition=edition))
            controller.take(await anext(batches))
            controller.settle()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Folder(Path(directory) / "objects", 5, 8080, 8443, Issued("bench CA").pem.decode())
        calls = asyncio.run(walk(folder))
    print(f"one edit   {calls.figures('')}")
    print(f"  reading  {calls.figures('edge/', 'base/')}")
    print(f"  engine   {calls.figures('engine/')}")


if __name__ == "__main__":
    main()
