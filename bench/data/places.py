"""Defines the common environment of all proxies of the bench: backend addresses, names, certificates, and the core of each
process."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from examples.quickstart.certificates import Issued

PROXY_CORE: Final = 1
OTHER_CORE: Final = 0
DOMAIN: Final = "bench.example"
BACKENDS: Final = {"h1": "h1", "h2": "h2", "close": "close", "grpc": "h2", "echo": "echo"}
"""Hosts of the Gateway by their first label, and the port of the backends that each leads to (go/serve.go)."""


class Places(NamedTuple):
    home: Path
    traffic: Path
    """The program that is both ends."""
    ports: dict[str, int]
    """Of the backends."""

    @property
    def ca(self) -> Path:
        return self.home / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The certificate of the backends and of the listener that terminates TLS: `*.bench.example`."""
        return self.home / "server.crt"

    @property
    def key(self) -> Path:
        return self.home / "server.key"

    def port(self, label: str) -> int:
        return self.ports[BACKENDS[label]]


def host(label: str) -> str:
    return f"{label}.{DOMAIN}"


def pinned(core: int) -> list[str]:
    return ["taskset", "--cpu-list", str(core)]


@contextlib.contextmanager
def places(home: Path, traffic: Path) -> Iterator[Places]:
    """Makes the certificates and starts the backends."""
    ca = Issued("bench CA")
    (home / "ca.crt").write_bytes(ca.pem)
    Issued(f"*.{DOMAIN}", ca).write(home, "server")
    command = [*pinned(OTHER_CORE), str(traffic), "serve"]
    command += ["-certificate", str(home / "server.crt"), "-key", str(home / "server.key")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        assert process.stdout is not None
        yield Places(home, traffic, json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
