"""Whether a port of this host can be had, of TCP and of UDP."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from lasthop.infra import ports
from tests.ports import free_port

KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


@pytest.fixture(params=KINDS)
def taken(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with socket.socket(socket.AF_INET, KINDS[request.param]) as holder:
        # As Envoy does: a second one that asks for the same would get it.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", free_port()))
        if request.param == "TCP":
            holder.listen()
        yield request.param, holder.getsockname()[1]


def test_a_taken_port_has_a_holder_and_is_free_for_the_other_transport(taken: tuple[str, int]) -> None:
    transport, port = taken
    said = ports.problem("127.0.0.1", port, transport)
    assert said is not None and said.in_use
    assert f"(pid {os.getpid()})" in said.message
    assert ("(UDP)" in said.message) == (transport == "UDP")
    assert list(ports.holders(port, transport)) == [os.getpid()]
    assert ports.problem("127.0.0.1", port, "UDP" if transport == "TCP" else "TCP") is None


def test_a_holder_is_found_whatever_else_it_closes_meanwhile() -> None:
    spare = os.open("/", os.O_RDONLY)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port()))
        holder.listen()
        # Listing the descriptors of this process opens one that is gone when its turn comes: the lowest that is free.
        os.close(spare)
        assert list(ports.holders(holder.getsockname()[1])) == [os.getpid()]


def test_an_address_of_another_machine_is_said_so() -> None:
    said = ports.problem("192.0.2.1", 5353, "UDP")
    assert said is not None and "is not an address of this machine" in said.message and not said.in_use
