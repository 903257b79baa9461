"""Whether a port of this host is available, for TCP and for UDP."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.binary import Envoy
from lasthop.engine.resolve.gateways.ports import BindResult
from lasthop.run.infra import ports
from lasthop.run.infra.processes import Processes
from tests.ports import free_port

KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


@pytest.fixture(params=KINDS)
def taken(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    with socket.socket(socket.AF_INET, KINDS[request.param]) as holder:
        # As Envoy does: a second process that requests the same port would get it.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", free_port()))
        if request.param == "TCP":
            holder.listen()
        yield request.param, holder.getsockname()[1]


def test_a_taken_port_has_a_holder_and_is_free_for_the_other_transport(taken: tuple[str, int]) -> None:
    transport, port = taken
    problem = ports.problem("127.0.0.1", port, transport)
    assert problem is not None and problem.in_use
    assert f"(pid {os.getpid()})" in problem.message
    assert ("(UDP)" in problem.message) == (transport == "UDP")
    assert list(ports.holders(port, transport)) == [os.getpid()]
    assert ports.problem("127.0.0.1", port, "UDP" if transport == "TCP" else "TCP") is None


def test_a_holder_is_identified_while_it_closes_other_files() -> None:
    spare = os.open("/", os.O_RDONLY)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", free_port()))
        holder.listen()
        # Listing the descriptors of this process opens one that is gone when its turn comes: the lowest that is free.
        os.close(spare)
        assert list(ports.holders(holder.getsockname()[1])) == [os.getpid()]


def test_an_address_of_another_machine_is_reported() -> None:
    problem = ports.problem("192.0.2.1", 5353, "UDP")
    assert problem is not None and "is not an address of this machine" in problem.message and not problem.in_use


def test_a_held_port_is_taken_for_all_but_those_who_share_it_as_envoy_does_and_gets_no_connection() -> None:
    port = free_port()
    held = ports.hold("127.0.0.1", port)
    assert isinstance(held, ports.HeldPort)
    with held, socket.socket() as envoy:
        for again in (ports.hold("127.0.0.1", port), ports.problem("0.0.0.0", port)):
            assert isinstance(again, ports.BindProblem) and again.in_use
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            envoy.setsockopt(socket.SOL_SOCKET, option, 1)
        envoy.bind(("127.0.0.1", port))
        envoy.listen()
        envoy.settimeout(10)
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", port), timeout=10):
                envoy.accept()[0].close()
    assert ports.problem("127.0.0.1", port) is None


class Told:
    """Records the port problems that the processes of one Lasthop report."""

    def __init__(self, run_dir: Path) -> None:
        self.problems: dict[str, str] = {}
        self.processes = Processes(
            Envoy(Path("/no/envoy"), (1, 40, 0)),
            run_dir,
            bind_result=self._bind_result,
            proxy_event=lambda *_: None,
            entry=lambda _: None,
            skipped=lambda *_: None,
        )

    def _bind_result(self, key: Key, address: str, port: int, transport: str, result: BindResult | None) -> None:
        self.problems.pop(address, None)
        if result:
            self.problems[address] = result.problem

    def want(self, port: int, *addresses: str) -> dict[str, str]:
        self.processes.want({Key("Gateway", "a", "web"): {(address, port, "TCP") for address in addresses}})
        self.processes.try_ports()
        return self.problems


async def test_one_of_two_lasthops_that_start_at_the_same_time_gets_a_port(tmp_path: Path) -> None:
    port, first, second = free_port(), Told(tmp_path / "first"), Told(tmp_path / "second")
    assert first.want(port, "127.0.0.1") == {"127.0.0.1": ""}, "and its Envoy has yet to bind it"
    assert "is in use by" in second.want(port, "127.0.0.1")["127.0.0.1"]
    assert second.want(port, "127.0.0.2") == {"127.0.0.2": ""}
    first.want(port)
    assert second.want(port, "127.0.0.1", "127.0.0.2") == {"127.0.0.1": "", "127.0.0.2": ""}
    second.want(port)


async def test_a_gateway_may_bind_an_address_and_all_addresses(tmp_path: Path) -> None:
    port, processes = free_port(), Told(tmp_path)
    assert processes.want(port, "127.0.0.1") == {"127.0.0.1": ""}
    assert set(processes.want(port, "0.0.0.0", "127.0.0.1").values()) == {""}
    assert ports.problem("127.0.0.1", port) is not None
    processes.want(port)
    assert ports.problem("127.0.0.1", port) is None


async def test_an_ipv6_wildcard_holds_no_ipv4_address(tmp_path: Path) -> None:
    port, processes = free_port(), Told(tmp_path)
    if ports.problem("::1", port):
        pytest.skip("this machine has no IPv6")
    assert processes.want(port, "::") == {"::": ""}
    assert ports.problem("::1", port) is not None
    assert ports.problem("127.0.0.1", port) is None
    assert processes.want(port, "::", "0.0.0.0") == {"::": "", "0.0.0.0": ""}
    assert ports.problem("127.0.0.1", port) is not None
    processes.want(port)
