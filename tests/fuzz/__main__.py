"""`python -m tests.fuzz --seed 1 --seconds 60`: see the package."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from random import Random

import yaml

from lasthop.base.text.logs import LOG
from tests.fuzz.harness import Failed, Harness, harness
from tests.fuzz.objects import Document, Tenant

CORPUS = Path(__file__).parent / "corpus"
EVERY = 100
"""Iterations between two lines of progress."""


def corpus() -> dict[str, list[Document]]:
    return {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(CORPUS.glob("*.yaml"))}


def world(seed: int, number: int) -> list[Document]:
    return Tenant(Random(f"{seed}/{number}")).objects()


async def fuzz(seed: int, first: int, iterations: int | None, seconds: float | None) -> int:
    began, number = time.monotonic(), first
    async with harness() as fuzzed:
        for name, documents in corpus().items():
            if problem := await _try(fuzzed, documents):
                print(f"corpus/{name}: {problem}")
                return 1
        print(f"the corpus passes ({len(corpus())} worlds); seed {seed}, from iteration {first}", flush=True)
        while iterations is None or number < first + iterations:
            if seconds is not None and time.monotonic() - began > seconds:
                break
            documents = world(seed, number)
            if problem := await _try(fuzzed, documents):
                _report(seed, number, problem, await _smaller(documents))
                return 1
            number += 1
            if (number - first) % EVERY == 0:
                print(f"{number - first} worlds, {time.monotonic() - began:.0f} s", flush=True)
    print(f"nothing found: {number - first} worlds of seed {seed}, {time.monotonic() - began:.0f} s")
    return 0


async def _try(fuzzed: Harness, documents: list[Document]) -> str:
    try:
        await fuzzed.show(documents)
    except Failed as failed:
        return str(failed)
    return ""


async def _smaller(documents: list[Document]) -> list[Document]:
    """Removes every object that the failure does not need, each time with a new Envoy."""
    for candidate in list(documents):
        fewer = [document for document in documents if document is not candidate]
        async with harness() as fuzzed:
            if await _try(fuzzed, fewer):
                documents = fewer
    return documents


def _report(seed: int, number: int, problem: str, documents: list[Document]) -> None:
    print(f"seed {seed}, iteration {number}: {problem}\n")
    print(yaml.safe_dump_all(documents, allow_unicode=False, sort_keys=False))
    print(f"Again: make fuzz SEED={seed} FIRST={number} ITERATIONS=1")
    print(f"Once it is fixed, keep the objects above as {CORPUS.relative_to(Path.cwd())}/WHAT-FAILED.yaml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the iteration to start with")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--seconds", type=float)
    args = parser.parse_args()
    LOG.write = lambda *entry: None
    seconds = args.seconds if args.seconds or args.iterations else 60.0
    return asyncio.run(fuzz(args.seed, args.first, args.iterations, seconds))


if __name__ == "__main__":
    sys.exit(main())
