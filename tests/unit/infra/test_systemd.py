"""Messages to systemd, and parsing of its output."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from lasthop.run.infra import systemd

ROOT = Path(__file__).parents[3]
UNIT = ROOT / "deploy/systemd/lasthop.service"


@pytest.mark.parametrize("abstract", [False, True])
def test_lines_are_one_datagram(tmp_path: Path, abstract: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = f"@lasthop-test-{tmp_path.name}" if abstract else str(tmp_path / "s")
        manager.bind(address.replace("@", "\0", 1))
        assert systemd.notify("READY=1", systemd.status("it\nis=1 ready"), environment={"NOTIFY_SOCKET": address})
        assert manager.recv(1024) == b"READY=1\nSTATUS=it is=1 ready"


@pytest.mark.parametrize("address", ["", "nonsense", "/does/not/exist"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    assert not systemd.notify("READY=1", environment={"NOTIFY_SOCKET": address})


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/lasthop.service\n", "lasthop.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/lasthop.service\n", "lasthop.service"),
        ("1:name=systemd:/system.slice/lasthop.service/payload\n0::/\n", "lasthop.service"),
        ("0::/\n", ""),
    ],
)
def test_the_unit_is_read_from_the_cgroup(cgroup: str, unit: str) -> None:
    assert systemd.unit(cgroup) == unit


def test_the_job_of_a_unit_is_found_among_others() -> None:
    jobs = "  12 other.service   stop    waiting\n 341 lasthop.service restart running\n"
    assert systemd.job(jobs, "lasthop.service") == "restart"
    assert systemd.job(jobs, "hop.service") == ""


@pytest.mark.program("systemd")
def test_the_unit_is_one_that_systemd_understands(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports every unknown setting; the programs that it starts must exist."""
    unit = tmp_path / "lasthop.service"
    unit.write_text(UNIT.read_text().replace("/opt/lasthop/bin/lasthop", "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_unit_leaves_proxies_for_a_restart_and_is_not_root() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert settings["User"] == "lasthop"
    assert "--handover" in settings["ExecStart"]
    assert (settings["KillMode"], settings["RuntimeDirectoryPreserve"]) == ("process", "restart")
    assert settings["CapabilityBoundingSet"] == "CAP_NET_BIND_SERVICE"
