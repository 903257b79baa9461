"""The Go toolchain, from the module proxy as `go` itself would fetch it: no Go need be installed, and it is the same one."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from conformance.needs import Missing

VERSION = "go1.27.3"  # the suite v1.7.0 asks for 1.27
# What sum.golang.org says about golang.org/toolchain@v0.0.1-<version>.linux-<architecture>.
_SUMS = {
    "amd64": "h1:r0ub+FnqzZxoWm/dSUOI9DcIqYWn/mNYGFJcv7PyBzs=",
    "arm64": "h1:VY4gDzfxOrsM17J2qtgZgiAIsWhp7XWK1jMfE3kXV0s=",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def go(cache: Path) -> Path:
    """The `go` command, fetched into the cache folder if it is not there yet."""
    architecture = _ARCHITECTURES.get(platform.machine(), "")
    if not architecture:
        raise Missing(f"The cluster runs on x86_64 and aarch64; this is {platform.machine()}")
    version = f"v0.0.1-{VERSION}.linux-{architecture}"
    target = cache / f"toolchain-{VERSION}"
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".toolchain-") as scratch:
            archive = Path(scratch) / "toolchain.zip"
            _download(f"{_proxy()}/golang.org/toolchain/@v/{version}.zip", archive)
            unpack(archive, Path(scratch), _SUMS[architecture])
            (Path(scratch) / f"golang.org/toolchain@{version}").rename(target)
    return target / "bin" / "go"


def _proxy() -> str:
    """The first proxy that $GOPROXY names."""
    named = os.environ.get("GOPROXY", "").replace("|", ",").split(",")
    return next((entry.rstrip("/") for entry in named if entry.startswith("http")), "https://proxy.golang.org")


def _download(url: str, path: Path) -> None:
    print(f"Fetching Go from {url} (75 MB, once)", flush=True)
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, path.open("wb") as file:
            shutil.copyfileobj(answer, file)
    except (urllib.error.URLError, OSError) as error:
        raise Missing(f"{url} cannot be fetched: {error}. $GOPROXY may name another proxy of Go modules") from error


def unpack(archive: Path, folder: Path, expected: str) -> None:
    with zipfile.ZipFile(archive) as files:
        if (found := h1(files)) != expected:
            raise Missing(f"The Go toolchain that was fetched is not the one that was published: {found}, not {expected}")
        files.extractall(folder)
    # The format of modules keeps no permissions; these are the folders with programs.
    for program in (*folder.glob("golang.org/*/bin/*"), *folder.glob("golang.org/*/pkg/tool/*/*")):
        program.chmod(0o755)


def h1(files: zipfile.ZipFile) -> str:
    """Go's hash of a module: of the list of the hashes of its files."""
    listed = "".join(f"{hashlib.sha256(files.read(name)).hexdigest()}  {name}\n" for name in sorted(files.namelist()))
    return "h1:" + base64.b64encode(hashlib.sha256(listed.encode()).digest()).decode()
