"""Ports and addresses that a Gateway cannot bind, and the reachability of those that it binds."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends import until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.lasthop import Lasthop


@pytest.fixture
def lasthop(own: Callable[..., Lasthop]) -> Lasthop:
    return own()


def programmed(lasthop: Lasthop, gateway: str = "web") -> tuple[str, str, str]:
    return lasthop.conditions("Gateway", gateway).get("Programmed", ("", "", ""))


def answers(lasthop: Lasthop, port: int = 0) -> bool:
    """With anything at all: there is no such host."""
    return lasthop.get("nobody", port=port).status == 404


def test_a_taken_port_is_named_with_its_holder_and_served_once_it_is_free(lasthop: Lasthop) -> None:
    with socket.create_server(("127.0.0.1", lasthop.port)):
        lasthop.standard()
        lasthop.start(ready=False)
        until(lambda: programmed(lasthop)[:2] == ("False", "AddressNotUsable"))
        assert not lasthop.ready(), "its only port is not served"
        assert lasthop.command("status", "--exit-code").returncode == 1
        message = programmed(lasthop)[2]
        assert f"127.0.0.1:{lasthop.port} is in use by pytest (pid " in message or "is in use by python" in message
        assert "stop it, or give the listener another port" in message
        told = [line for line in lasthop.log.splitlines() if "is in use by" in line]
        assert len(told) == 1 and "listener" in told[0], told
        assert json.loads(told[0])["event"].endswith("; stop it, or give the listener another port"), "one remedy"
    until(lambda: answers(lasthop), "served once it is free")
    until(lambda: programmed(lasthop)[0] == "True")


def test_a_port_of_another_gateway_is_named_with_the_command_that_frees_it(lasthop: Lasthop) -> None:
    lasthop.standard()
    lasthop.start()
    with tempfile.TemporaryDirectory(prefix="lh") as root:
        other = Lasthop(Path(root))
        other.port = lasthop.port
        other.standard()
        try:
            other.start(ready=False)
            until(lambda: programmed(other)[:2] == ("False", "AddressNotUsable"))
            assert (
                f"is in use by the gateway on {lasthop.folder}; stop it (lasthop stop {lasthop.folder})"
                in programmed(other)[2]
            )
            stop = [*other.executable, "stop", lasthop.folder]
            subprocess.run(stop, env=lasthop.env, check=True, capture_output=True)
            until(lambda: answers(other), "the port is taken over")
        finally:
            other.close()


def test_one_taken_port_does_not_keep_the_other_from_being_served(lasthop: Lasthop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bad = taken.getsockname()[1]
        lasthop.write(
            "gateway.yaml",
            docs.gateway_class(),
            docs.gateway("web", docs.http(lasthop.port), docs.http(bad, "bad")),
            *docs.hop("first", 9),
        )
        lasthop.start(ready=False)
        until(lambda: lasthop.ready() and programmed(lasthop)[0] == "True")
        until(lambda: answers(lasthop))

        def reasons() -> dict[str, str]:
            return {
                listener["name"]: next(c["reason"] for c in listener["conditions"] if c["type"] == "Programmed")
                for listener in lasthop.object("Gateway", "web")["status"]["listeners"]
            }

        until(lambda: reasons() == {"http": "Programmed", "bad": "AddressNotUsable"})


def test_an_address_of_another_machine_is_named_and_other_gateways_are_served(lasthop: Lasthop) -> None:
    lasthop.standard()
    lasthop.write("far.yaml", docs.gateway("far", docs.http(free_port()), address="203.0.113.1"))
    lasthop.start(ready=False)
    until(lambda: answers(lasthop))
    until(lambda: programmed(lasthop, "far")[:2] == ("False", "AddressNotUsable"))
    assert "203.0.113.1 is not an address of this machine" in programmed(lasthop, "far")[2]
    assert "203.0.113.1" in lasthop.log
    until(lambda: programmed(lasthop)[0] == "True")


def test_the_older_of_two_gateways_gets_a_port(lasthop: Lasthop) -> None:
    lasthop.write(
        "gateway.yaml", docs.gateway_class(), *docs.hop("first", 9, gateway="old"), *docs.hop("second", 9, gateway="new")
    )
    lasthop.write("old.yaml", docs.gateway("old", docs.http(lasthop.port), created="2026-01-01T00:00:00Z"))
    lasthop.write("new.yaml", docs.gateway("new", docs.http(lasthop.port), created="2026-02-01T00:00:00Z"))
    lasthop.write("routes.yaml", docs.route("by-new", gateway="new"), docs.route("by-old", gateway="old"))
    lasthop.start(ready=False)
    until(lambda: programmed(lasthop, "old")[0] == "True")
    until(lambda: programmed(lasthop, "new")[:2] == ("False", "AddressNotUsable"))
    assert "Gateway shop/old" in programmed(lasthop, "new")[2]
    until(lambda: lasthop.get("by-old").status == 500)
    assert {lasthop.get("by-old").status for _ in range(10)} == {500}, "no request goes to the other's Envoy"
    assert {lasthop.get("by-new").status for _ in range(10)} == {404}
    (lasthop.folder / "old.yaml").unlink()
    until(lambda: programmed(lasthop, "new")[0] == "True")
    until(lambda: lasthop.get("by-new").status == 500)


def test_an_address_for_the_cluster_alone_can_be_reached_from_this_host_and_by_no_other_address(lasthop: Lasthop) -> None:
    inside = docs.gateway("web", docs.http(lasthop.port), addresses=[{"routability": "Cluster"}])
    lasthop.write("gateway.yaml", docs.gateway_class(), docs.namespace("shop"), inside)
    lasthop.start()
    (address,) = lasthop.object("Gateway", "web")["status"]["addresses"]
    assert (address["value"], address["routability"]) == ("127.0.0.1", "Cluster")
    assert lasthop.conditions("Gateway", "web")["AddressesAssigned"][:2] == ("True", "Assigned")
    with socket.create_connection(("127.0.0.1", lasthop.port), 5):
        pass
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", lasthop.port), 5):
        pass
