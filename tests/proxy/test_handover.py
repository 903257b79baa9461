"""A Lasthop that gives way to the next one, as systemd, an upgrade or a person wants it: not one request fails."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lasthop.edge.proxy.binary import find_envoy
from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import EXECUTABLE, Lasthop
from tests.proxy.load import Load

OK = (200, "backend")


@pytest.fixture
def lasthop(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> Lasthop:
    return serving(own("--concurrency", "2", "--handover", "120"), serve)


def says(lasthop: Lasthop, what: str, times: int = 1) -> bool:
    return lasthop.log.count(what) == times


def serving(made: Lasthop, serve: Callable[..., Backend]) -> Lasthop:
    made.standard()
    made.write("ca.yaml", docs.config_map("ca", CA.pem))
    made.write("hop.yaml", *docs.hop("api", serve(issued()).port, docs.policy("api", "api.example", "ca")))
    made.start()
    made.settle()
    return made


@pytest.fixture
def load(lasthop: Lasthop) -> Iterator[Load]:
    with Load(lasthop, "api", clients=3, keep_alive=False) as running:
        yield running
    assert running.seen() == {OK}, [taken for taken in running.taken if taken.what != OK]


def until_replaced(lasthop: Lasthop, envoy: int) -> None:
    until(lambda: len(envoys := lasthop.envoys()) == 1 and envoys != [envoy], "the old Envoy has ended")


def left(lasthop: Lasthop) -> list[Path]:
    return list((lasthop.root / "r").glob("*/left"))


def test_no_request_fails_while_it_is_terminated_and_started_again(lasthop: Lasthop, load: Load) -> None:
    (envoy,) = lasthop.envoys()
    for _ in range(3):
        assert lasthop.stop() == 0
        assert len(left(lasthop)) == 1
        load.more()
        lasthop.start()
        assert not left(lasthop)
    assert lasthop.envoys() == [envoy]
    load.more()


def test_no_request_fails_while_another_terminal_takes_over(lasthop: Lasthop, load: Load) -> None:
    (envoy,) = lasthop.envoys()
    first = lasthop.process
    assert first
    lasthop.args = (*lasthop.args, "--replace")
    lasthop.start()
    assert first.wait(10) == 0
    assert lasthop.envoys() == [envoy]
    load.more()


def test_no_request_fails_while_it_starts_itself_anew(lasthop: Lasthop, load: Load) -> None:
    (envoy,) = lasthop.envoys()
    assert lasthop.process
    lasthop.process.send_signal(signal.SIGHUP)
    until(lambda: lasthop.log.count('"proxy started"') == 2, "it has found its Envoy again")
    until(lasthop.ready)
    assert lasthop.process.poll() is None
    assert lasthop.envoys() == [envoy]
    load.more()
    lasthop.settle()


def test_a_sigterm_while_it_starts_itself_anew_is_not_lost(lasthop: Lasthop, load: Load) -> None:
    (envoy,) = lasthop.envoys()
    for times in (1, 2, 3):
        process = lasthop.process
        assert process
        process.send_signal(signal.SIGHUP)
        until(functools.partial(says, lasthop, "Lasthop restarts", times), "it leaves")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)  # the latter while it is neither the old one nor yet the new one
        assert lasthop.envoys() == [envoy]
        load.more()
        lasthop.start()
    assert lasthop.envoys() == [envoy]


def test_a_ctrl_c_while_it_starts_itself_anew_ends_the_proxies_too(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop = serving(own("--concurrency", "1", "--handover", "5"), serve)
    assert lasthop.process
    lasthop.process.send_signal(signal.SIGHUP)
    until(functools.partial(says, lasthop, "Lasthop restarts"), "it leaves")
    lasthop.process.send_signal(signal.SIGINT)
    lasthop.process.wait(30)
    until(lambda: lasthop.envoys() == [], "whoever cares for what is left has ended it")


def test_no_request_fails_while_another_binary_of_envoy_replaces_the_old_one(lasthop: Lasthop, load: Load) -> None:
    for name in ("one", "two"):
        (before,) = lasthop.envoys()
        binary = lasthop.root / name
        shutil.copy(find_envoy().path, binary)
        lasthop.env["LASTHOP_ENVOY"] = str(binary)
        assert lasthop.stop() == 0
        lasthop.start()
        until_replaced(lasthop, before)
        load.more()


def test_a_second_gateway_on_a_folder_is_refused_with_both_ways_out(lasthop: Lasthop) -> None:
    refused = lasthop.cli("run", str(lasthop.folder), "--admin", "127.0.0.1:1")
    assert refused.returncode == 1
    assert "--replace" in refused.stderr
    assert "lasthop stop" in refused.stderr
    assert lasthop.get("api") == OK


def test_ctrl_c_drains_independent_of_sigterm(lasthop: Lasthop) -> None:
    assert lasthop.process
    lasthop.process.send_signal(signal.SIGINT)
    assert lasthop.process.wait(15) == 0
    assert lasthop.envoys() == []
    assert not left(lasthop)


def test_left_proxies_are_drained_without_a_successor_in_time(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop = serving(own("--concurrency", "1", "--handover", "1"), serve)
    assert lasthop.stop() == 0
    assert "the proxies keep serving, left to the next Lasthop for 1 s" in lasthop.log
    until(lambda: lasthop.envoys() == [], "the caretaker has ended it")
    until(lambda: not left(lasthop), "and has said so")
    nothing = f"Nothing runs on {lasthop.folder.resolve()}\n"
    until(lambda: lasthop.command("stop", str(lasthop.folder)).stdout == nothing, "the caretaker has let go of the folder")


def test_stop_ends_what_a_killed_one_left(lasthop: Lasthop) -> None:
    lasthop.kill()
    assert lasthop.get("api") == OK
    ended = lasthop.command("stop", str(lasthop.folder))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"Ended 1 Envoy without a Lasthop on {lasthop.folder.resolve()}\n"
    assert lasthop.envoys() == []
    assert lasthop.command("stop").stdout == "No gateway runs on this machine\n"


def test_stop_drains_a_gateway_that_would_leave_its_proxies(lasthop: Lasthop) -> None:
    assert lasthop.process
    # The parent reaps it, or it would not be seen to end.
    reaping = threading.Thread(target=lasthop.process.wait)
    reaping.start()
    ended = lasthop.cli("stop")
    reaping.join(10)
    assert (ended.returncode, lasthop.process.returncode) == (0, 0), ended.stderr
    assert ended.stdout.startswith(f"Ending the gateway on {lasthop.folder.resolve()} (pid {lasthop.process.pid})")
    assert lasthop.envoys() == []


def test_systemd_is_notified_of_ready_reload_and_stop(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> None:
    made = own("--concurrency", "1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(made.root / "notify"))
        manager.settimeout(30)
        made.env["NOTIFY_SOCKET"] = str(made.root / "notify")
        serving(made, serve)
        assert made.process
        assert manager.recv(4096) == b"READY=1\nSTATUS=ready"
        made.process.send_signal(signal.SIGHUP)
        reloading = manager.recv(4096)
        assert reloading.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        while (told := manager.recv(4096)) != b"READY=1\nSTATUS=ready":
            assert told.startswith(b"READY=1\nSTATUS=not ready")
        made.process.send_signal(signal.SIGTERM)
        while (told := manager.recv(4096)) != b"STOPPING=1":
            assert told.startswith(b"READY=1")


def test_a_gateway_that_nohup_protects_from_hang_ups_ignores_them(own: Callable[..., Lasthop]) -> None:
    made = own()
    made.standard()
    made.executable = ["nohup", EXECUTABLE]
    made.start()
    assert made.process
    made.process.send_signal(signal.SIGHUP)
    made.settle()
    assert made.log.count('"running"') == 1


def test_an_unrelated_process_is_not_signalled_because_of_a_lock(own: Callable[..., Lasthop]) -> None:
    made = own()
    made.standard()
    made.start()
    made.kill()
    with subprocess.Popen(["sleep", "60"]) as innocent:
        for lock in (made.root / "r").glob("*/lock"):
            lock.write_text(str(innocent.pid))
        assert made.command("stop", str(made.folder)).returncode == 0
        assert innocent.poll() is None
        os.kill(innocent.pid, signal.SIGKILL)
