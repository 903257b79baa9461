"""Runs README's two commands on a Debian with only Python, make and git, as root and as a plain user: `make bare`.

    Debian's packages ──mmdebstrap──> base ──copy, clone of the last commit──> a root file system for each of the two users

For root, `make test` installs what the tests need, and all of them run. The plain user cannot install anything: tests that
need a missing program are skipped, with a line for each program. Kernel and network are those of this machine, and so is the
way in which pip and apt reach their packages. Needs root, on Debian.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from release.debian import copied, unready
from release.dist import ROOT
from release.places import cache
from tests.backends import until
from tools.programs import SYSTEM, TABLE

PACKAGES: Final = ("python3", "make", "git")
APT: Final = ("apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire")
PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
READY: Final = "Ctrl-C stops everything"
NOT_READY: Final = "Lasthop is not ready"
"""The last line of `make run` before requests is one of them."""

# The shell stays as the first process of a PID namespace: it reaps orphaned processes.
ENTER: Final = """set -e
root=$1; shift
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cd "$root"
pivot_root . .
umount -l .
cd "$1"; shift
"$@"
exit $?"""


class User(NamedTuple):
    name: str
    home: str
    path: str
    become: tuple[str, ...] = ()


ADMINISTRATOR: Final = User("root", "/root", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
PLAIN: Final = User(
    "guest",
    "/home/guest",
    "/usr/local/bin:/usr/bin:/bin",
    ("setpriv", "--reuid=guest", "--regid=guest", "--init-groups", "--no-new-privs"),
)


class Machine(NamedTuple):
    root: Path
    user: User
    settings: dict[str, str]

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        """Starts a command in the clone, in a separate process group."""
        known = {"HOME": self.user.home, "PATH": self.user.path, **self.settings, **env}
        variables = [f"{name}={value}" for name, value in known.items()]
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", str(self.root)]
        return subprocess.Popen(
            [*enter, f"{self.user.home}/lasthop", "env", "-i", *variables, *self.user.become, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.bare")
    parser.add_argument("--all", action="store_true", help="all tests as the plain user as well")
    everything = parser.parse_args().all
    if reason := unready("bare"):
        print(reason)
        return 2
    with machine(ADMINISTRATOR) as bare:
        demo(bare)
        tests(bare, CI="true")
    with machine(PLAIN) as bare:
        demo(bare)
        absent = [program for program in TABLE if "test" in program.targets and not program.find(_inside(bare))]
        assert absent, "this machine is not bare: it has every program that tests need"
        output = tests(bare, **({} if everything else {"PYTEST": " ".join(needy())}))
        unnamed = [program.name for program in absent if program.absence() not in output]
        assert not unnamed, f"no skipped test names these missing programs: {', '.join(unnamed)}"
    print("Both commands work on a bare machine, for root and for a plain user.")
    return 0


@contextlib.contextmanager
def machine(user: User) -> Iterator[Machine]:
    """Makes a machine for one user, with a clone of the last commit in the user's home."""
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bare-", dir=cache()) as folder:
        root = Path(folder) / "root"
        copied("bare", PACKAGES, root)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")  # as installers do
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        (root / "etc/apt/apt.conf.d/90host").write_text(apt_settings(_said(*APT)))
        if user.become:
            subprocess.run(["chroot", root, "useradd", "--create-home", user.name], check=True)
        clone = root / user.home.lstrip("/") / "lasthop"
        subprocess.run(["git", "clone", "--quiet", f"file://{ROOT}", clone], check=True)
        subprocess.run(["chroot", root, "chown", "-R", f"{user.name}:", f"{user.home}/lasthop"], check=True)
        settings = {**pip_settings(_said(sys.executable, "-m", "pip", "config", "list")), **_proxies()}
        for value in settings.values():
            share(value, root)
        print(f"--- a bare machine, as {user.name}: {', '.join(PACKAGES)}", flush=True)
        yield Machine(root, user, settings)


def pip_settings(listing: str) -> dict[str, str]:
    """Returns the output of `pip config list` as environment variables, which take precedence over files there too."""
    lines = sorted(listing.splitlines(), key=lambda line: line.startswith(":env:"))
    pairs = (line.split("=", 1) for line in lines)
    return {f"PIP_{key.rpartition('.')[2].upper().replace('-', '_')}": str(ast.literal_eval(value)) for key, value in pairs}


def apt_settings(listing: str) -> str:
    """Returns how apt downloads here (proxies, which dates it accepts), but not which lists for other tools."""
    return "".join(line for line in listing.splitlines(keepends=True) if "::IndexTargets::" not in line)


def _proxies() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.lower() in PROXIES}


def share(value: str, root: Path) -> None:
    """Copies the file or folder that a setting names, such as a bundle of CAs, to the same place."""
    place = root / value.lstrip("/")
    if value.startswith("/") and os.path.exists(value) and not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--recursive", "--dereference", value, place], check=True)


def needy() -> list[str]:
    """Returns the test files that contain tests which need a program."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file.relative_to(ROOT)) for file in files if 'mark.program("' in file.read_text()]


def _inside(bare: Machine) -> str:
    return ":".join(f"{bare.root}{folder}" for folder in (bare.user.path + SYSTEM).split(":"))


def demo(bare: Machine) -> None:
    """Runs `make run`, requests the URLs that it suggests, and ends it with Ctrl-C."""
    with bare.start("make", "run") as run:
        try:
            output = "".join(_shown(run, READY, NOT_READY))
            tries = expectations(output)
            assert tries and READY in output, "make run printed no URLs to try"
            for url, status in tries:
                until(partial(answers, url, status), f"{url} answers {status}")
                print(f"ok       {url} answers {status}", flush=True)
            os.killpg(run.pid, signal.SIGINT)
            print(run.communicate(timeout=60)[0], flush=True)
        finally:
            run.kill()


def expectations(output: str) -> list[tuple[str, int]]:
    """Returns the URLs that `make run` suggests, with the expected status."""
    return [(url, int(status)) for url, status in re.findall(r"curl -i (\S+)\W+(\d{3})\b", output)]


def answers(url: str, status: int) -> bool:
    parts = urlsplit(url)
    with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=10)) as connection:
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status == status
        except (OSError, http.client.HTTPException):
            return False


def tests(bare: Machine, **env: str) -> str:
    """Runs `make test`, and returns its output."""
    with bare.start("make", "test", **env) as run:
        try:
            output = "".join(_shown(run))
            assert run.wait() == 0, f"make test failed as {bare.user.name}"
            return output
        finally:
            run.kill()


def _shown(run: subprocess.Popen[str], *last: str) -> Iterator[str]:
    """Yields and prints the output of a process, up to one of the last lines."""
    assert run.stdout
    for line in run.stdout:
        print(line, end="", flush=True)
        yield line
        if any(text in line for text in last):
            return


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
