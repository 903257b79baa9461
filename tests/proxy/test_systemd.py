"""The unit in deploy/systemd under a real systemd: this user's own manager, which supports all settings but another user and
the sandbox."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lasthop.edge.proxy.binary import find_envoy
from tests.backends import until
from tests.proxy.lasthop import EXECUTABLE, Lasthop
from tests.proxy.load import Load
from tools import programs

pytestmark = [pytest.mark.program("systemd"), pytest.mark.program("unshare")]
UNIT = Path(__file__).parents[2] / "deploy/systemd/lasthop.service"
HIERARCHIES = [Path("/sys/fs/cgroup") / name for name in ("systemd", "unified", "")]
COMMON = ("Type", "ExecStart", "ExecReload", "Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec", "KillMode")
"""The settings of the unit that concern how it starts and ends."""


class Systemd:
    """Runs in a mount namespace with a /run of its own, because it runs only where systemd has booted."""

    def __init__(self, lasthop: Lasthop) -> None:
        self.lasthop = lasthop
        self.home = lasthop.root / "systemd"
        self.home.mkdir(mode=0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        # In cgroups of its own: it would move every process that it finds beside itself.
        self.cgroups = [root / f"lasthop-{os.getpid()}" for root in HIERARCHIES if (root / "cgroup.procs").exists()]
        for cgroup in self.cgroups:
            cgroup.mkdir()
        entered = " && ".join(f"echo $$ > {cgroup}/cgroup.procs" for cgroup in self.cgroups)
        manager = programs.path("systemd")
        booted = f"{entered} && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec {manager} --user"
        with (lasthop.root / "systemd.log").open("wb") as log:
            self.process = subprocess.Popen(["unshare", "--mount", "sh", "-c", booted], env=self.env, stdout=log, stderr=log)

    def close(self) -> None:
        self.ctl("stop", "lasthop")
        self.ctl("exit")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()
        for cgroup in self.cgroups:
            for folder, _, _ in os.walk(cgroup, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def answers(self) -> bool:
        if self.process.poll() is not None:
            pytest.skip("no systemd can run here")
        return self.ctl("list-jobs").returncode == 0

    def ctl(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = ["systemctl", "--user", *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60, check=False)

    def do(self, *args: str) -> None:
        done = self.ctl(*args)
        assert done.returncode == 0, f"{args}: {done.stderr}{self.lasthop.log}"

    def until_started(self, times: int) -> None:
        until(lambda: self.lasthop.log.count('"running"') == times, "it has started again")

    def install(self, **more: str) -> None:
        run = f"{self.lasthop.folder} --admin 127.0.0.1:{self.lasthop.admin} --concurrency 2"
        settings = [line for line in UNIT.read_text().splitlines() if line.split("=")[0] in COMMON]
        text = "\n".join(settings).replace("/opt/lasthop/bin/lasthop", str(EXECUTABLE)).replace("/etc/lasthop/objects", run)
        text = text.replace("--handover 30", "--handover 300")  # on a busy machine a start may take longer than anybody waits
        names = {name: self.lasthop.env[name] for name in ("LASTHOP_RUN_DIR", "LASTHOP_STATE_DIR")} | more
        environment = "".join(f"\nEnvironment={name}={value}" for name, value in names.items())
        unit = self.home / "config/systemd/user/lasthop.service"
        unit.parent.mkdir(parents=True, exist_ok=True)
        unit.write_text(f"[Service]\n{text}{environment}\nStandardError=append:{self.lasthop.root / 'err'}\n")
        self.do("daemon-reload")


@pytest.fixture
def systemd(own: Callable[..., Lasthop]) -> Iterator[Systemd]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a /run for systemd")
    made = own()
    made.standard()
    manager = Systemd(made)
    try:
        until(manager.answers, "systemd answers")
        manager.install()
        yield manager
    finally:
        manager.close()


def test_no_request_fails_while_systemd_restarts_and_reloads_the_unit_and_a_stop_ends_everything(systemd: Systemd) -> None:
    lasthop = systemd.lasthop
    systemd.do("start", "lasthop")
    until(lambda: lasthop.get("nobody").status == 404, "it serves: systemd was told when it is ready")
    (first,) = lasthop.envoys()
    with Load(lasthop, "nobody", keep_alive=False) as load:
        for starts, verb in enumerate(("restart", "reload", "restart"), 2):
            systemd.do(verb, "lasthop")
            systemd.until_started(starts)
            load.more()
            assert lasthop.envoys() == [first], f"{verb}: {lasthop.log}"
        binary = lasthop.root / "envoy"
        shutil.copy(find_envoy().path, binary)
        systemd.install(LASTHOP_ENVOY=str(binary))
        systemd.do("restart", "lasthop")
        until(lambda: len(envoys := lasthop.envoys()) == 1 and envoys != [first], "the new Envoy has replaced the old one")
        systemd.do("kill", "--signal=KILL", "--kill-whom=main", "lasthop")
        load.more()
        systemd.until_started(6)
        load.more()
    assert {taken.what for taken in load.taken} == {(404, "No route of this gateway matches the request.\n")}
    systemd.do("stop", "lasthop")
    assert lasthop.envoys() == [], lasthop.log
