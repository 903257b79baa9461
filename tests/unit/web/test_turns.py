"""Callers take turns, and none waits for another one's queue."""

from __future__ import annotations

import asyncio

import pytest

from lasthop.web.reviews import CallerTurns, Full


class World:
    def __init__(self, **limits: int) -> None:
        self.turns = CallerTurns(**{"at_once": 1, "per_caller": 1, "waiting": 3, **limits})
        self.log: list[str] = []
        self.done = asyncio.Event()

    async def work(self, caller: str, name: str = "") -> None:
        async with self.turns.turn(caller):
            self.log.append(name or caller)
            await self.done.wait()

    def ask(self, caller: str, name: str = "") -> asyncio.Task[None]:
        return asyncio.ensure_future(self.work(caller, name))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_callers_take_turns_however_many_of_one_wait() -> None:
    world = World()
    tasks = [world.ask("a", f"a{number}") for number in range(3)]
    await settle()
    tasks += [world.ask("b", f"b{number}") for number in range(2)]
    await settle()
    assert world.log == ["a0"]
    world.done.set()
    await asyncio.gather(*tasks)
    assert world.log == ["a0", "a1", "b0", "a2", "b1"]
    assert repr(world.turns) == "<CallerTurns: 0 working, 0 waiting>"


async def test_a_caller_has_so_many_places_and_another_has_its_own() -> None:
    world = World(waiting=2)
    tasks = [world.ask("a") for _ in range(3)]
    await settle()
    with pytest.raises(Full, match="2 requests of this caller already wait"):
        await world.work("a")
    tasks.append(world.ask("b"))
    await settle()
    assert repr(world.turns) == "<CallerTurns: 1 working, 3 waiting>"
    world.done.set()
    await asyncio.gather(*tasks)


async def test_so_many_work_at_once_and_of_one_caller_fewer() -> None:
    world = World(at_once=3, per_caller=2)
    tasks = [world.ask("a"), world.ask("a"), world.ask("a"), world.ask("b"), world.ask("c")]
    await settle()
    assert world.log == ["a", "a", "b"]
    world.done.set()
    await asyncio.gather(*tasks)
    assert sorted(world.log) == ["a", "a", "a", "b", "c"]


async def test_a_caller_that_gives_up_is_dropped_and_delays_no_others() -> None:
    world = World()
    first, given_up, last = world.ask("a"), world.ask("a", "given up"), world.ask("a", "last")
    await settle()
    given_up.cancel()
    await settle()
    assert repr(world.turns) == "<CallerTurns: 1 working, 1 waiting>"
    world.done.set()
    await asyncio.gather(first, last)
    assert world.log == ["a", "last"]


async def test_a_caller_that_gives_up_at_its_turn_returns_it() -> None:
    world = World()
    first, second, third = world.ask("a"), world.ask("b"), world.ask("c")
    await settle()
    first.cancel()
    await asyncio.sleep(0)  # the place of the second is set, and it has not run yet
    second.cancel()
    await settle()
    assert world.log[-1] == "c" and repr(world.turns) == "<CallerTurns: 1 working, 0 waiting>"
    world.done.set()
    await third


async def test_when_all_give_up_at_once_every_place_is_free_again() -> None:
    world = World(at_once=2, per_caller=2, waiting=9)
    tasks = [world.ask(caller) for caller in "aaaaabbbbbc"]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert world.log == ["a", "a"] and repr(world.turns) == "<CallerTurns: 0 working, 0 waiting>"
    world.done.set()
    await world.work("d")
