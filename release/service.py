"""Installs the wheel on a Debian as in docs/systemd.md, and restarts the service under load: `make service`.

    Debian's packages ──mmdebstrap──> base ──copy, systemd-nspawn──> a machine with a systemd of its own, and a network

It is the system's own manager that runs the unit of deploy/systemd, with its user and its sandbox. Needs root, on Debian.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from release.debian import copied, unready
from release.dist import FOLDER, ROOT
from tests.backends import backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop
from tests.proxy.load import Load

PAGE: Final = ROOT / "docs" / "systemd.md"
PACKAGES: Final = ("systemd", "systemd-sysv", "dbus", "python3", "python3-venv", "ca-certificates")
PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OBJECTS: Final = "etc/lasthop/objects"
HTTP: Final = 80
"""A port that needs the capability of the unit."""


def main() -> int:
    if reason := unready("service"):
        print(reason)
        return 2
    with tempfile.TemporaryDirectory(prefix="lasthop-service-") as folder:
        root = Path(folder) / "root"
        copied("machine", PACKAGES, root)
        made, pip, *rest = instructions(PAGE.read_text())
        assert made == "make dist", made  # which `make service` has done
        clone = root / "root"
        shutil.copytree(ROOT / "deploy" / "systemd", clone / "deploy" / "systemd")
        (clone / "dist").mkdir()
        for wheel in FOLDER.glob("*.whl"):
            shutil.copy(wheel, clone / "dist")
        install(root, pip)
        with machine(root) as leader:
            _enter_network(leader)
            try:
                return tried(root, leader, rest)
            except Exception:
                print(_inside(leader, "journalctl", "--no-pager", "--unit=lasthop"))
                raise


def instructions(page: str) -> list[str]:
    """Returns the lines of the page's first block of shell, which install the service."""
    block = re.search(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert block, "docs/systemd.md does not say how to install the service"
    return block[1].splitlines()


def install(root: Path, line: str) -> None:
    """Runs the line that needs pip, with the network, CAs and download cache of pip on this machine."""
    downloads, bundle = Path.home() / ".cache/pip", os.environ.get("PIP_CERT", "")
    downloads.mkdir(parents=True, exist_ok=True)
    command = ["systemd-nspawn", "--quiet", f"--directory={root}", "--register=no", "--keep-unit", "--pipe"]
    command += ["--resolv-conf=copy-host", f"--bind={downloads}:/root/.cache/pip", "--setenv=PIP_DISABLE_PIP_VERSION_CHECK=1"]
    command += [f"--bind-ro={bundle}:/run/ca.pem", "--setenv=PIP_CERT=/run/ca.pem"] if bundle else []
    subprocess.run(_private(*command, "sh", "-c", f"cd /root && {line} --quiet"), check=True)


@contextlib.contextmanager
def machine(root: Path) -> Iterator[int]:
    """Boots it, and yields the id of its first process."""
    command = ["systemd-nspawn", "--quiet", f"--directory={root}", "--register=no", "--keep-unit", "--console=pipe"]
    # Of systemd-nspawn's own filter, not of the unit's: a machine would permit it.
    command += ["--private-network", "--system-call-filter=pidfd_getfd", "--boot"]
    with subprocess.Popen(
        _private(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        try:
            leader: int = until(lambda: _leader(run.pid), "it boots")
            until(lambda: _inside(leader, "systemctl", "is-active", "multi-user.target") == "active\n", "it has booted")
            yield leader
        finally:
            run.kill()  # and with it everything inside


def _private(*command: str) -> list[str]:
    """Returns a command that gets its own /run, because files that systemd-nspawn leaves there must not stay."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "sh", *command]


def _leader(nspawn: int) -> int | None:
    """Returns the machine's first process, once that is systemd."""
    children = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()
    return next((int(child) for child in children if Path(f"/proc/{child}/comm").read_text() == "systemd\n"), None)


def _inside(leader: int, *command: str) -> str:
    """Runs a command in the machine, and returns its output; it may fail."""
    entered = ["nsenter", f"--target={leader}", "--all", "env", "-i", PATH, "HOME=/root", *command]
    return subprocess.run(entered, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120).stdout


def _must(leader: int, line: str) -> None:
    output = _inside(leader, "sh", "-c", f"cd /root && {line} || echo FAILED")
    assert "FAILED" not in output, f"{line}: {output}"
    print(f"ok       {line}")


def _enter_network(leader: int) -> None:
    """Lets this process, and all threads that it starts, see the machine's loopback instead of this one's."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{leader}/ns/net") as network:
        assert libc.setns(network.fileno(), 0) == 0, os.strerror(ctypes.get_errno())


def tried(root: Path, leader: int, lines: list[str]) -> int:
    for line in lines:
        _must(leader, line)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="lh-") as folder, backend(issued()) as answering:
        gateway = Lasthop(Path(folder))
        gateway.folder, gateway.port = root / OBJECTS, HTTP
        gateway.standard()
        gateway.write(
            "objects.yaml",
            docs.config_map("ca", CA.pem),
            *docs.hop("api", answering.port, docs.policy("api", "api.example", "ca")),
        )
        _must(leader, f"chgrp lasthop /{OBJECTS}/* && chmod 0640 /{OBJECTS}/*")
        gateway.until_status("api", 200)
        for keep_alive in (True, False):
            with Load(gateway, "api", 4, keep_alive=keep_alive) as load:
                for line in ("restart", "reload", "restart", "kill --signal=KILL --kill-whom=main"):
                    _start_again(leader, line)
                    load.more(100)
                _other_envoy(root, leader)
                load.more(500)
            lost = [taken for taken in load.taken if taken.what != (200, "backend")]
            kind = "kept" if keep_alive else "new"
            print(f"{len(load.taken):,} requests on {kind} connections, {len(lost)} failed (promised: 0) {lost[:3] or ''}")
            failed += bool(lost)
    _must(leader, "systemctl stop lasthop")
    left = _inside(leader, "find", "/proc", "-maxdepth", "1", "-user", "lasthop")
    assert not left, f"processes that a stop has left: {left}"
    return 1 if failed else 0


def _start_again(leader: int, line: str) -> None:
    before = _started(leader)
    _must(leader, f"systemctl {line} lasthop")
    until(lambda: _started(leader) > before, "it has started again")


def _started(leader: int) -> int:
    return _inside(leader, "journalctl", "--no-pager", "--unit=lasthop", "--output=cat").count('"event": "running"')


def _other_envoy(root: Path, leader: int) -> None:
    """Restarts it with another binary of Envoy, and waits until the one before has ended."""
    (old,) = _envoys(leader)
    packaged = "/opt/lasthop/lib/python3.*/site-packages/envoy/_bin/envoy"
    copy = f"/opt/envoy-{old}"
    _must(leader, f"cp {packaged} {copy}")
    drop_in = root / "etc/systemd/system/lasthop.service.d/envoy.conf"
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text(f"[Service]\nEnvironment=LASTHOP_ENVOY={copy}\n")
    _must(leader, "systemctl daemon-reload && systemctl restart lasthop")
    until(lambda: len(envoys := _envoys(leader)) == 1 and envoys != [old], "another Envoy has replaced the old one")


def _envoys(leader: int) -> list[str]:
    shown = _inside(leader, "sh", "-c", "ls -l /proc/[0-9]*/exe 2>/dev/null")
    return re.findall(r"/proc/(\d+)/exe -> \S*/envoy[^/\s]*$", shown, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
