"""For any order of responses to watches and lists: no port is plaintext while a policy that is older than its route names
it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import slow
from tests.fake_api import FakeApi, Refusal, serving, until
from tests.unit.proving import POLICIES, Site, base, controlling, put_policy, put_route, put_service

PLURALS: Final = ("httproutes", "services", POLICIES)
LIVES: Final = {
    "protected": ("policy", "service", "route"),
    "protected, route first": ("policy", "route", "service"),
    "edited": ("policy", "service", "edit", "route"),
    "freed": ("policy", "service", "route", "delete"),
    "made again": ("policy", "delete", "policy", "route", "service"),
    "plain": ("service", "route"),
    "plain, route first": ("route", "service"),
}
"""The writes to a name in order; each is acknowledged before the next."""
STEPS: Final = st.one_of(
    st.tuples(st.just("live"), st.integers(0, 2)),
    st.tuples(st.sampled_from(PLURALS), st.integers(1, 4)),
    st.tuples(st.sampled_from(("gate", "fail", "end")), st.integers(0, 1)),
)


PAUSE: Final = 0.015
"""Seconds between two steps, enough for a list to be answered."""


class World:
    def __init__(self) -> None:
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        self.numbers = itertools.count()
        self.api, self.site = self.runner.run(self._start())

    async def _start(self) -> tuple[FakeApi, Site]:
        api = await self.stack.enter_async_context(serving(FakeApi()))
        base(api)
        site = await self.stack.enter_async_context(controlling(api))
        await until(site.controller.loaded.is_set)
        return api, site

    def close(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    async def play(self, lives: list[str], steps: list[tuple[str, int]], order: list[str]) -> None:
        """Lives the lives while things happen, then has the watches catch up one after the other."""
        names = [f"n{next(self.numbers)}" for _ in lives]
        left = {name: list(LIVES[life]) for name, life in zip(names, lives, strict=True)}
        for plural in PLURALS:
            self.api.delay(plural)
        for step, number in steps:
            self._step(step, number, names, left)
            await asyncio.sleep(PAUSE)
        for name in names:
            while left[name]:
                self._do(left[name].pop(0), name)
        self.api.gates.pop(("list", POLICIES), asyncio.Event()).set()
        self.api.faults.clear()
        for plural in order:
            self.api.deliver(plural)
            await asyncio.sleep(2 * PAUSE)
        for name, life in zip(names, lives, strict=True):
            protected = LIVES[life][-1] != "delete" and "policy" in LIVES[life]
            await self.site.becomes(name, "tls" if protected else "plaintext")
            assert not protected or "plaintext" not in self.site.history[name]
        for name in names:
            self.api.delete("httproutes", name, "shop")

    def _step(self, step: str, number: int, names: list[str], left: dict[str, list[str]]) -> None:
        match step:
            case "live":
                name = names[number % len(names)]
                if left[name]:
                    self._do(left[name].pop(0), name)
            case "gate":
                self.api.gates.setdefault(("list", POLICIES), asyncio.Event())
                if not number:
                    self.api.gates.pop(("list", POLICIES)).set()
            case "fail":
                self.api.faults.clear()
                if number:
                    self.api.fail("list", POLICIES, "*", Refusal(503, "ServiceUnavailable"))
            case "end":
                self.api.end(POLICIES)
            case _:
                self.api.deliver(step, number)

    def _do(self, deed: str, name: str) -> None:
        match deed:
            case "policy":
                put_policy(self.api, name)
            case "edit":
                put_policy(self.api, name, options={"lasthop.dev/min-tls-version": "1.3"})
            case "service":
                put_service(self.api, name)
            case "route":
                put_route(self.api, name)
            case _:
                assert "plaintext" not in self.site.history.get(name, ())
                self.api.delete(POLICIES, name, "shop")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    running = World()
    yield running
    running.close()


@slow(40)
@given(
    lives=st.lists(st.sampled_from(sorted(LIVES)), min_size=1, max_size=3),
    steps=st.lists(STEPS, max_size=12),
    order=st.permutations(PLURALS),
)
def test_no_order_of_answers_opens_a_port_that_a_policy_names(
    world: World, lives: list[str], steps: list[tuple[str, int]], order: list[str]
) -> None:
    world.runner.run(world.play(lives, steps, order))
