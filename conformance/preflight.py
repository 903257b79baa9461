"""Checks, before anything is started, that the machine has what the cluster needs."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

# command -> Debian package
COMMANDS = {"ip": "iproute2", "nft": "nftables", "unshare": "util-linux", "nsenter": "util-linux", "mount": "mount"}


class Missing(Exception):
    """Something that this machine lacks, with what to do about it."""


def check() -> None:
    if platform.system() != "Linux":
        raise Missing("The cluster runs in Linux network namespaces; this is " + platform.system())
    if os.geteuid() != 0:
        raise Missing(
            "The cluster needs root (network namespaces, mounts): run it with sudo or in a virtual machine of its own"
        )
    packages = sorted({package for command, package in COMMANDS.items() if find(command) is None})
    if packages and shutil.which("apt-get"):
        print(f"Installing {', '.join(packages)} with apt-get", flush=True)
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *packages]
        if subprocess.run(install, env=quiet).returncode:
            subprocess.run(["apt-get", "update", "--quiet=2"], env=quiet)
            subprocess.run(install, env=quiet)
    absent = {command: package for command, package in COMMANDS.items() if find(command) is None}
    if absent:
        wanted = ", ".join(f"`{command}` ({package})" for command, package in absent.items())
        raise Missing(f"The cluster needs {wanted}: install with this machine's package manager")


def find(command: str) -> str | None:
    # Not on every PATH (su, cron): where `nft` and `ip` live, and where Go's own archive goes.
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/go/bin")
