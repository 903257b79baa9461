"""Starts and stops the bench's processes: the backend, and the real `lasthop run` with its Envoy."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

STOP_WITHIN = 20.0
PROCESS_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of <linux/posix-timers.h>: another process's CPU time in nanoseconds, where /proc has ticks of 10 ms."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(home: Path) -> dict[str, str]:
    """Returns the environment of a Lasthop whose sockets and state are in `home`. Its bytecode is kept, and there already, as
    where pip has installed it: a folder of sources, or a variable of this shell, would make each start compile everything."""
    variables = os.environ | {"LASTHOP_RUN_DIR": str(home / "run"), "LASTHOP_STATE_DIR": str(home / "state")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    everything = "import lasthop.cli.commands.controller, lasthop.cli.commands.run"
    subprocess.run([sys.executable, "-c", everything], env=variables, check=True)
    return variables


@contextlib.contextmanager
def backend(certificate: Path, key: Path, address: str = "127.0.0.1") -> Iterator[tuple[int, tuple[int, int]]]:
    """Its process id and two ports. It ends with our end of its standard input, so also if we are killed."""
    command = [sys.executable, "-m", "bench.backend", str(certificate), str(key), address]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline().split()
        yield process.pid, (int(first), int(second))
    finally:
        process.kill()
        process.wait()


class Gateway:
    """`lasthop run FOLDER`, as a user would start it, with its sockets and state in `home`."""

    def __init__(self, folder: Path, home: Path, program: Sequence[str] = ("-m", "lasthop.cli.main")) -> None:
        self.admin = free_port()
        self._log = home / "lasthop.log"
        variables = environment(home)
        command = [sys.executable, *program, "run", str(folder)]
        command += ["--admin", f"127.0.0.1:{self.admin}", "--concurrency", "2"]
        self._proxies: list[int] = []
        with self._log.open("wb") as log:
            self.started = time.perf_counter()
            # A separate process group: Ctrl-C reaches only this process, which stops the other.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, process_group=0
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def envoy(self) -> int:
        """The process id of the proxy."""
        self._find_proxies()
        return self._proxies[0]

    def stop(self) -> None:
        """Also ends the proxy if Lasthop cannot any more: it is made to outlive its parent."""
        self._find_proxies()
        try:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_WITHIN)
        finally:
            self._process.kill()
            self._process.wait()
            for pid in self._proxies:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def failures(self) -> list[str]:
        """The last few failed requests, as it prints them."""
        return [line for line in self._log.read_text(errors="replace").splitlines() if line.startswith("{")][-3:]

    # --- its own reports ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"lasthop run ended with {self._process.returncode}:\n{self.log_tail()}")
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    # --- the kernel's reports ----------------------------------------------------------------------------------------

    def _find_proxies(self) -> None:
        self._proxies = children(self.pid) or self._proxies


def cpu(pid: int) -> float:
    """Seconds of CPU of all threads of a process."""
    return time.clock_gettime((~pid << 3) | PROCESS_CPU_CLOCK)


def main_thread_cpu(pid: int) -> float:
    """The same of its first thread, which in Envoy is the one that takes configuration."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def busy() -> float:
    """Seconds of CPU that this machine has spent on anything, or that a hypervisor has withheld from it."""
    user, nice, system, _idle, _waiting, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """MiB."""
    match = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def children(pid: int) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(int(name)) == pid]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
