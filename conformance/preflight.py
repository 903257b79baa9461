"""Checks before the start that the machine has everything the cluster needs."""

from __future__ import annotations

import os
import platform
import shutil

from tools import programs


class Missing(Exception):
    """Something that this machine lacks, with what to do about it."""


def check() -> None:
    if platform.system() != "Linux":
        raise Missing("The cluster runs in Linux network namespaces; this is " + platform.system())
    if os.geteuid() != 0:
        raise Missing(
            "The cluster needs root (network namespaces, mounts): run it with sudo or in a virtual machine of its own"
        )
    if absent := programs.install("conformance"):
        raise Missing("\n".join(program.absence() for program in absent))


def find(command: str) -> str | None:
    # Not on every PATH (su, cron): where Go's own archive goes.
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
