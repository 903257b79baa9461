"""Traffic while a process dies, and processes when they are stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends import Backend, until
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import BACKEND_FAILURE, Lasthop
from tests.proxy.load import Load

OK = (200, "backend")


@pytest.fixture
def served(serve: Callable[..., Backend]) -> Backend:
    return serve(issued())


@pytest.fixture(scope="module")
def made(module_own: Callable[..., Lasthop]) -> Lasthop:
    return module_own()


@pytest.fixture
def lasthop(made: Lasthop, served: Backend) -> Lasthop:
    """A running gateway, independent of earlier tests."""
    (made.root / "err").write_text("")
    (made.folder / "more.yaml").unlink(missing_ok=True)
    made.standard()
    made.write("ca.yaml", docs.config_map("ca", CA.pem))
    made.write("hop.yaml", *docs.hop("api", served.port, docs.policy("api", "api.example", "ca")))
    if made.process is None or made.process.poll() is not None:
        made.start()
    made.settle()
    return made


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_envoy_serves_on_when_lasthop_is_killed_and_the_next_one_takes_it_over(lasthop: Lasthop, served: Backend) -> None:
    (envoy,) = lasthop.envoys()
    with Load(lasthop, "api") as load:
        lasthop.kill()
        load.more(50)
        assert lasthop.envoys() == [envoy]
        load.no_change(lasthop.start)
        assert lasthop.envoys() == [envoy]
        load.change(
            lambda: lasthop.write("hop.yaml", *docs.hop("api", served.port, docs.policy("api", "new.example", "ca"))),
            (503, BACKEND_FAILURE),
        )
    assert load.seen() == {OK, (503, BACKEND_FAILURE)}
    assert not served.saw_plaintext
    started = [json.loads(line) for line in lasthop.log.splitlines() if '"proxy started"' in line]
    assert (started[-1]["pid"], started[-1]["adopted"]) == (envoy, True)


def test_breaks_while_nothing_ran_count_from_the_next_start_on(lasthop: Lasthop, served: Backend) -> None:
    (envoy,) = lasthop.envoys()
    lasthop.kill()
    (lasthop.folder / "ca.yaml").unlink()
    assert lasthop.get("api").status == 200, "nobody has told Envoy yet"
    lasthop.start()
    lasthop.until_status("api", 500)
    assert lasthop.envoys() == [envoy]
    assert not served.saw_plaintext


def test_a_policy_file_broken_before_a_restart_keeps_its_last_good_content(lasthop: Lasthop, served: Backend) -> None:
    assert lasthop.stop() == 0
    (lasthop.folder / "hop.yaml").write_text("kind: [\n")
    lasthop.start()
    lasthop.until_status("api", 200)
    assert served.last.sni == "api.example"
    assert "hop.yaml:" in lasthop.log


def test_a_policy_deleted_while_nothing_ran_is_an_error_and_in_the_record_after_every_restart(
    lasthop: Lasthop, served: Backend
) -> None:
    until(lambda: list((lasthop.root / "s").rglob("verification.json")), "what is remembered is saved")
    assert lasthop.stop() == 0
    lasthop.write("hop.yaml", *docs.hop("api", served.port))
    since = ("audit", str(lasthop.folder), "--since", "1h", "-o", "json")
    for _ in range(2):
        lasthop.start()
        until(lambda: "BackendTLSPolicy shop/api was deleted" in lasthop.command("status", "httproute", "api").stdout)
        assert lasthop.conditions("HTTPRoute", "api")["VerificationWeakened"][:2] == ("True", "NoLongerVerified")
        assert lasthop.conditions("Gateway", "web")["BackendsWeakened"][:2] == ("True", "NoLongerVerified")
        assert "weaker, not acknowledged" in lasthop.command("audit", "--since", "1h").stdout
        until(lambda: '"weaker": true' in lasthop.command(*since).stdout, "it is on disk")
        assert lasthop.stop() == 0
    (change,) = [entry for entry in json.loads(lasthop.command(*since).stdout)["changes"] if entry["weaker"]]
    assert (change["before"], change["after"], change["weaker"]) == ("verified (CA) for api.example", "plaintext", True)
    assert (change["backend"], change["because"]) == ("shop/api", "BackendTLSPolicy shop/api was deleted")


def test_an_envoy_that_is_killed_is_started_again(lasthop: Lasthop) -> None:
    (envoy,) = lasthop.envoys()
    os.kill(envoy, signal.SIGKILL)
    until(lambda: lasthop.envoys() not in ([], [envoy]), "another Envoy runs")
    until(lambda: lasthop.get("api").status == 200)
    assert "was killed by signal 9" in lasthop.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing_running(lasthop: Lasthop, number: signal.Signals) -> None:
    lasthop.write("more.yaml", docs.gateway("more", docs.http(free_port())), docs.gateway("most", docs.http(free_port())))
    envoys = until(
        lambda: envoys_running if len(envoys_running := lasthop.envoys()) == 3 else None, "an Envoy for each Gateway"
    )
    assert lasthop.process
    lasthop.process.send_signal(number)
    assert lasthop.process.wait(10) == 0
    assert lasthop.envoys() == []
    assert not any(alive(pid) for pid in envoys)
    with socket.create_server(("127.0.0.1", lasthop.port)):
        pass
    assert "Traceback" not in lasthop.log
    assert list((lasthop.root / "r").glob("*/*.sock")) == []


def test_a_signal_at_the_start_also_ends_proxies_of_an_earlier_run(lasthop: Lasthop) -> None:
    lasthop.kill()
    assert len(lasthop.envoys()) == 1
    lasthop.start(ready=False)
    until(lambda: lasthop.log.count('"running"') == 2, "it hears signals")
    assert lasthop.stop() == 0
    assert lasthop.envoys() == []


def test_a_deleted_gateway_loses_its_envoy(lasthop: Lasthop) -> None:
    lasthop.write("more.yaml", docs.gateway("more", docs.http(free_port())))
    until(lambda: len(lasthop.envoys()) == 2)
    (lasthop.folder / "more.yaml").unlink()
    until(lambda: len(lasthop.envoys()) == 1)
    assert lasthop.get("api").status == 200
