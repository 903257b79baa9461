"""Lists the programs outside .venv that `make` targets need, and installs those that this machine lacks.

    python -m tools.programs test

As root on Debian it installs the packages, and prints each; elsewhere it changes nothing. Tests that need a program which is
still missing are skipped, and fail in CI (tests/conftest.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

SYSTEM: Final = ":/usr/local/sbin:/usr/sbin:/sbin:/lib/systemd"
"""Folders of programs that are not on the PATH of every user."""

DEBIAN: Final = Path("/etc/debian_version")


class Program(NamedTuple):
    name: str
    package: str
    """Of Debian."""
    targets: tuple[str, ...]
    """Of the Makefile."""
    purpose: str
    others: tuple[str, ...] = ()
    """Programs of other names that will do."""
    service: str = ""
    """The unit that the package enables and nothing here needs."""

    def find(self, path: str = "") -> str | None:
        path = path or os.environ.get("PATH", os.defpath) + SYSTEM
        return next((file for name in (self.name, *self.others) if (file := shutil.which(name, path=path))), None)

    def absence(self) -> str:
        return f"{self.name} is not installed ({self.purpose}); on Debian: apt-get install {self.package}"


BROWSERS: Final = ("chromium-browser", "google-chrome", "google-chrome-stable")
TABLE: Final = (
    Program("bash", "bash", ("test",), "pipes and redirections; action.yml"),
    Program("chromium", "chromium", ("test", "site"), "pages in a browser", BROWSERS),
    Program("curl", "curl", ("test",), "the commands of the documentation"),
    Program("haproxy", "haproxy", ("test",), "the import from OpenShift", service="haproxy"),
    Program("nginx", "nginx-light", ("test",), "the import from ingress-nginx", service="nginx"),
    Program("openssl", "openssl", ("test",), "the commands of the documentation"),
    Program("setpriv", "util-linux", ("test",), "gateways of other users"),
    Program("systemd", "systemd", ("test",), "the unit in deploy/systemd"),
    Program("unshare", "util-linux", ("test", "bare", "conformance", "service"), "namespaces"),
    Program("mmdebstrap", "mmdebstrap", ("bare", "image", "service"), "a root file system from Debian's packages"),
    Program("buildah", "buildah", ("image",), "the image"),
    Program("podman", "podman", ("image",), "containers of the image"),
    Program("runc", "runc", ("image",), "containers of the image"),
    Program("ip", "iproute2", ("conformance",), "the cluster's network"),
    Program("mount", "mount", ("conformance",), "volumes"),
    Program("nft", "nftables", ("conformance",), "Services"),
    Program("nsenter", "util-linux", ("conformance", "service"), "commands inside"),
    Program("systemd-nspawn", "systemd-container", ("service",), "the machine"),
)


def named(name: str) -> Program:
    (match,) = (program for program in TABLE if program.name == name)
    return match


def path(name: str) -> str:
    """Returns where a program is, for a test or a target that has made sure of it."""
    file = named(name).find()
    assert file, named(name).absence()
    return file


def missing(target: str) -> list[Program]:
    return [program for program in TABLE if target in program.targets and program.find() is None]


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def install(target: str) -> list[Program]:
    """Installs what the target needs, where this user can, and returns the programs that are still missing."""
    absent = missing(target)
    if absent and os.geteuid() == 0 and DEBIAN.exists():
        _apt("update")
        for program in absent:
            if program.find() is None:  # one package may have several of them
                print(f"Installing {program.package}, for `make {target}` ({program.purpose})", flush=True)
                _apt("install", "--yes", "--no-install-recommends", program.package)
                if program.service and shutil.which("systemctl"):
                    subprocess.run(["systemctl", "disable", "--quiet", "--now", program.service], stderr=subprocess.DEVNULL)
    return missing(target)


def _apt(*command: str) -> None:
    """Runs apt-get, whose output is shown only if it fails."""
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    ran = subprocess.run(["apt-get", "--quiet=2", *command], env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ran.returncode:
        print(ran.stdout.decode(errors="replace"), flush=True)


def main(target: str) -> int:
    absent = install(target)
    if absent and in_ci():
        print(*(program.absence() for program in absent), sep="\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
