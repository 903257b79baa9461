"""`python -m tests.hunt --seed 1 --seconds 60`, `python -m tests.hunt replay FILE`: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random

from tests.hunt.gateway import Violation, replay, site
from tests.hunt.generator import Generator
from tests.hunt.history import History, dump, load
from tests.hunt.shrink import shrink

EVERY = 5.0
"""Seconds between two lines of progress."""
SHRINKING = 180.0
"""Seconds that are spent on a shorter history."""


def hunt(seed: int, steps: int | None, seconds: float | None, out: Path) -> int:
    began = printed = time.monotonic()
    generator = Generator(Random(f"hunt {seed}"))
    coming = generator.steps()
    first = next(coming)
    played = [first]
    print(f"seed {seed}; the folder is {'a link' if generator.linked else 'a plain folder'}", flush=True)
    with site(generator.linked) as gateway:
        while True:
            try:
                gateway.play(played[-1])
            except Violation as violation:
                kind = str(violation)
                print(f"seed {seed}, step {len(played)} ({played[-1].why}): {violation}\n", flush=True)
                break
            spent = time.monotonic() - began
            if (steps is not None and len(played) >= steps) or (seconds is not None and spent >= seconds):
                print(
                    f"nothing found: {len(played)} steps of seed {seed}, {gateway.probes} requests, {spent:.0f} s; "
                    f"at most {gateway.slowest:.1f} s until all was as after a fresh start"
                )
                return 0
            if time.monotonic() - printed > EVERY:
                printed = time.monotonic()
                print(f"{len(played)} steps, {gateway.probes} requests, {spent:.0f} s", flush=True)
            played.append(next(coming))
    history, why = shrink(History(tuple(played), generator.linked), kind, SHRINKING)
    out.write_text(dump(history))
    print(out.read_text())
    print(f"{why or 'Not reproduced while shortening.'}\nAgain: python -m tests.hunt replay {out}")
    print("Once it is fixed, keep the file in tests/hunt/corpus/ with the rule that it shows.")
    return 1


def again(path: Path) -> int:
    history = load(path)
    failed, why = replay(history)
    print(f"step {failed + 1}: {why}" if why else f"nothing found: {failed} steps")
    return 1 if why else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hunt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--out", type=Path, help="the file for the history of a violation")
    parser.add_argument("command", nargs="?", choices=["replay"])
    parser.add_argument("file", nargs="?", type=Path)
    args = parser.parse_args()
    if args.command:
        return again(args.file)
    seconds = args.seconds if args.seconds or args.steps else 60.0
    return hunt(args.seed, args.steps, seconds, args.out or Path(f"hunt-{args.seed}.yaml"))


if __name__ == "__main__":
    sys.exit(main())
