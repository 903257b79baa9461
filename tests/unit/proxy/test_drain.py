"""How an Envoy is ended: requests in flight finish, new ones are refused, idle connections do not hold it up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasthop.edge.proxy.admin import Admin
from lasthop.edge.proxy.drain import drain_and_terminate
from lasthop.edge.proxy.handle import EnvoyHandle
from tests.backends import until
from tests.servers import Patient, server
from tests.unit.proxy.static_envoy import StaticEnvoy, cluster, static_envoy


@pytest.fixture
def slow() -> Iterator[Patient]:
    handler = Patient()
    yield handler
    handler.told.set()


@pytest.fixture
def envoy(folder: Path, slow: Patient) -> Iterator[StaticEnvoy]:
    with contextlib.ExitStack() as stack:
        clusters = [cluster("slow", stack.enter_context(server(None, slow)))]
        clusters.append(cluster("quick", stack.enter_context(server(None))))
        yield stack.enter_context(static_envoy(folder, clusters))


async def timed_end(envoy: StaticEnvoy, grace: float, at_once: asyncio.Event | None = None) -> float:
    running = EnvoyHandle(envoy.pid, os.pidfd_open(envoy.pid), ())
    began = time.monotonic()
    await drain_and_terminate(running, Admin(envoy.admin_socket), grace, at_once or asyncio.Event())
    assert not running.alive
    running.close()
    return time.monotonic() - began


async def test_a_request_in_flight_is_answered_and_a_new_one_refused(envoy: StaticEnvoy, slow: Patient) -> None:
    async with asyncio.TaskGroup() as group:
        in_flight = group.create_task(asyncio.to_thread(envoy.get, "slow"))
        await asyncio.to_thread(slow.asked.wait)
        ending = group.create_task(timed_end(envoy, 30))
        await asyncio.to_thread(until, lambda: refuses(envoy))
        assert not in_flight.done() and not ending.done()
        slow.told.set()
    assert in_flight.result() == (200, "ok")
    assert ending.result() < 30, "it does not wait for the limit"


async def test_a_request_that_outlasts_the_grace_is_cut_off(envoy: StaticEnvoy, slow: Patient) -> None:
    async with asyncio.TaskGroup() as group:
        in_flight = group.create_task(asyncio.to_thread(_outcome, envoy))
        await asyncio.to_thread(slow.asked.wait)
        assert await timed_end(envoy, 0.4) < 30, "the request would last for ever"
    assert in_flight.result() == "cut off"


async def test_a_second_request_ends_it_at_once(envoy: StaticEnvoy, slow: Patient) -> None:
    at_once = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        in_flight = group.create_task(asyncio.to_thread(_outcome, envoy))
        await asyncio.to_thread(slow.asked.wait)
        ending = group.create_task(timed_end(envoy, 60, at_once))
        await asyncio.to_thread(until, lambda: refuses(envoy))
        assert not ending.done()
        at_once.set()
        asked = time.monotonic()
    assert in_flight.result() == "cut off"
    assert time.monotonic() - asked < 30, "it does not wait for the limit"


async def test_an_idle_keep_alive_connection_does_not_hold_up_the_end(envoy: StaticEnvoy) -> None:
    with socket.create_connection(("127.0.0.1", envoy.port)) as idle:
        idle.sendall(b"GET /-/up HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"204" in idle.recv(4096)
        assert (await Admin(envoy.admin_socket).traffic()).connections == 1
        assert await timed_end(envoy, 30) < 3


def refuses(envoy: StaticEnvoy) -> bool:
    """Reports whether new connections are refused."""
    try:
        envoy.get("quick")
    except OSError as error:
        return "refused" in str(error)
    return False


def _outcome(envoy: StaticEnvoy) -> str:
    try:
        return str(envoy.get("slow"))
    except OSError:
        return "cut off"
