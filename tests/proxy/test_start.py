"""Errors that keep `lasthop run` from starting are one sentence, without a traceback."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends import until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.lasthop import EXECUTABLE, Lasthop


def refused(lasthop: Lasthop, *args: str, **env: str) -> str:
    """Returns its output when it ends with code 1."""
    command: list[str | Path] = [EXECUTABLE, "run", *args]
    run = subprocess.run(command, env={**lasthop.env, **env}, capture_output=True, text=True, timeout=30, check=False)
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""
    return run.stderr


@pytest.fixture
def lasthop(own: Callable[..., Lasthop]) -> Lasthop:
    lasthop = own()
    lasthop.standard()
    return lasthop


def test_without_an_envoy_binary_it_says_where_it_looked_and_what_to_do(lasthop: Lasthop) -> None:
    said = refused(lasthop, str(lasthop.folder), LASTHOP_ENVOY="/nonexistent")
    assert said.startswith("Error: /nonexistent does not exist. Correct LASTHOP_ENVOY, which names it")


def test_something_else_than_an_envoy_is_not_run(lasthop: Lasthop) -> None:
    assert "is not an Envoy binary" in refused(lasthop, str(lasthop.folder), LASTHOP_ENVOY="/bin/true")


def test_a_taken_admin_address_is_named(lasthop: Lasthop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(lasthop, str(lasthop.folder), "--admin", address)
    assert f"the admin address {address} cannot be used" in said
    assert "--admin" in said
    assert lasthop.envoys() == []


def test_a_folder_that_is_not_there_is_named(lasthop: Lasthop) -> None:
    said = refused(lasthop, "/not/there", "--admin", f"127.0.0.1:{lasthop.admin}")
    assert "folder /not/there does not exist" in said and "running" not in said


def test_a_second_run_on_the_same_folder_leaves_the_first_alone(lasthop: Lasthop) -> None:
    lasthop.start()
    said = refused(lasthop, str(lasthop.folder), "--admin", f"127.0.0.1:{free_port()}")
    assert f"a gateway runs on {lasthop.folder} already" in said and "--replace" in said
    assert lasthop.ready()
    assert lasthop.cli("status").returncode == 0, "its admin socket is still there"
    assert len(lasthop.envoys()) == 1


def test_a_gateway_without_routes_is_ready_at_once(lasthop: Lasthop) -> None:
    lasthop.write("gateway.yaml", docs.gateway_class(), docs.gateway("web", docs.http(lasthop.port)))
    lasthop.start(ready=False)
    until(lasthop.ready, "ready")
    until(lambda: lasthop.get("nobody").status == 404)
