"""Installs the bench's programs beside the venv: the traffic program, built with Go, and Debian's packages."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import click

from bench.data.rows import HAPROXY, NGINX

SOURCES = Path(__file__).parent / "go"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "lasthop" / "bench"
PACKAGES = {NGINX: {"nginx": "/usr/sbin/nginx", "libnginx-mod-stream": "/usr/lib/nginx/modules/ngx_stream_module.so"}}
PACKAGES |= {HAPROXY: {"haproxy": "/usr/sbin/haproxy"}}
"""And a file of each."""


def installed(sides: Collection[str]) -> Path:
    """Installs and builds missing programs; returns the traffic program."""
    files = {package: file for side in sides for package, file in PACKAGES.get(side, {}).items()}
    if missing := [package for package, file in files.items() if not Path(file).exists()]:
        click.echo(f"installing {', '.join(missing)}", err=True)
        if not shutil.which("apt-get") or os.geteuid():
            raise RuntimeError(f"install {', '.join(missing)} first, or leave them out with --sides envoy")
        # No service is to be started by it.
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        subprocess.run(["apt-get", "update", "--quiet=2"], check=True, env=quiet)
        subprocess.run(["apt-get", "install", "--quiet=2", "--no-install-recommends", *missing], check=True, env=quiet)
    return _built()


def _built() -> Path:
    if not shutil.which("go"):
        raise RuntimeError("go is not installed: the clients and backends of this bench are built with it")
    sources = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    program = CACHE / f"traffic-{digest}"
    if not program.exists():
        click.echo("building the traffic program", err=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        new = program.with_suffix(f".{os.getpid()}")
        subprocess.run(["go", "build", "-o", new, "."], check=True, cwd=SOURCES, env={**os.environ, "CGO_ENABLED": "0"})
        new.rename(program)
    return program
