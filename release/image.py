"""Builds deploy/Dockerfile with buildah, writes its SBOM, checks its content, and tests it with podman: `make image`.

    Debian's packages ──mmdebstrap──> base ──deploy/Dockerfile──> image ──> dist/lasthop-VERSION.oci.tar, .cdx.json
                                                                    └─────> ~/.cache/lasthop/image/root, for conformance/

The base is made here, from the packages that this system's apt trusts, so no registry is needed; `make image BASE=NAME` takes
another one, debian:12-slim for example. Needs root, on Debian.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lasthop.run.infra.kubernetes.pods import USER
from release.debian import SUITE, bootstrap, unready
from release.dist import FOLDER, ROOT, source_date_epoch, write_sums
from release.places import cache, root_folder
from release.sbom import sbom
from release.trial import trial

OWN_BASE: Final = f"localhost/lasthop-base:{SUITE}"
SLIM: Final = (
    *(f"path-exclude=/usr/share/{folder}/*" for folder in ("doc", "info", "locale", "man")),
    "path-include=/usr/share/doc/*/copyright",
)
"""The image omits documentation, as Debian's own slim images do; licences stay."""
FORBIDDEN: Final = ("gcc", "cc", "g++", "clang", "tcc", "as", "ld", "make", "pip", "pip3", "curl", "wget")
"""Programs that the image must not have: what an intruder would build or fetch with."""


def storage() -> tuple[str, ...]:
    """Returns flags of buildah and podman for a storage of our own: other images of this machine are not touched."""
    return ("--root", str(cache() / "storage"), "--runroot", str(cache() / "run"), "--storage-driver", "overlay")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.image")
    parser.add_argument("--base", default="", help="an image to build on; default: built from Debian's packages")
    arguments = parser.parse_args()
    if reason := unready("image"):
        print(reason)
        return 2
    tag = f"localhost/lasthop:{version('lasthop')}"
    build(tag, arguments.base or own_base())
    unpack(tag)
    check(root_folder())
    FOLDER.mkdir(exist_ok=True)
    name = FOLDER / f"lasthop-{version('lasthop')}"
    archive, listing = Path(f"{name}.oci.tar"), Path(f"{name}.cdx.json")
    archive.unlink(missing_ok=True)
    _buildah("push", "--quiet", tag, f"oci-archive:{archive}:{tag}")
    listing.write_text(sbom(root_folder(), "lasthop", version("lasthop"), int(source_date_epoch(ROOT))))
    write_sums(FOLDER)
    trial(lambda folder: _run(tag, folder))
    print(f"dist/{archive.name}: {archive.stat().st_size / 1e6:.0f} MB; dist/{listing.name} lists what is in it")
    return 0


def own_base() -> str:
    """Makes the base, once, of the smallest set of packages that is Debian."""
    if subprocess.run(["buildah", *storage(), "images", "--quiet", OWN_BASE], capture_output=True).returncode == 0:
        return OWN_BASE
    cache().mkdir(parents=True, exist_ok=True)
    archive = cache() / "base.tar"
    print(f"Making a base from Debian's packages ({SUITE})", flush=True)
    bootstrap(archive, *(f"--dpkgopt={option}" for option in SLIM))
    container = _buildah("from", "scratch").strip()
    _buildah("add", container, str(archive), "/")
    _buildah("config", "--cmd", "/bin/sh", container)
    _buildah("commit", "--quiet", "--rm", container, OWN_BASE)
    archive.unlink()
    return OWN_BASE


def build(tag: str, base: str) -> None:
    epoch = source_date_epoch(ROOT)
    command = ["build", "--isolation=chroot", "--network=host", f"--timestamp={epoch}", "--layers", f"--tag={tag}"]
    command += [f"--build-arg=BASE={base}", "--file=deploy/Dockerfile", *_pip(), "."]
    subprocess.run(["buildah", *storage(), *command], cwd=ROOT, check=True)


def _pip() -> list[str]:
    """Returns mounts that let pip in the build reach what pip reaches here: this machine's settings, CAs and downloads."""
    config, bundle = cache() / "pip.conf", os.environ.get("PIP_CERT", "")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("[global]\n" + ("cert = /run/ca.pem\n" if bundle else ""))
    downloads = Path.home() / ".cache/pip"
    downloads.mkdir(parents=True, exist_ok=True)
    mounts = {str(config): "/etc/pip.conf", str(downloads): "/root/.cache/pip", **({bundle: "/run/ca.pem"} if bundle else {})}
    return [f"--volume={source}:{target}{':ro' if target != '/root/.cache/pip' else ''}" for source, target in mounts.items()]


def unpack(tag: str) -> None:
    """Copies the file system of the image to where pods of the small cluster can use it."""
    container = _buildah("from", "--pull-never", tag).strip()
    try:
        mounted = _buildah("mount", container).strip()
        shutil.rmtree(root_folder(), ignore_errors=True)
        subprocess.run(["cp", "--archive", mounted, str(root_folder())], check=True)
    finally:
        _buildah("rm", container)


def check(root: Path) -> None:
    """Fails if the file system contains forbidden programs or setuid files."""
    folders = [root / folder for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin", "opt/lasthop/bin")]
    forbidden = [str(folder / name) for folder in folders for name in FORBIDDEN if (folder / name).exists()]
    forbidden += [str(path) for name in ("site-packages/pip", "ensurepip") for path in root.rglob(name)]
    forbidden += [
        f"{file} (setuid)" for file in root.rglob("*") if stat.S_ISREG(mode := file.lstat().st_mode) and mode & 0o6000
    ]
    assert not forbidden, f"the image must not have {', '.join(forbidden)}"


def _run(tag: str, folder: Path) -> list[str | Path]:
    """Returns the command for `lasthop` in a container that can write to `folder` alone, as the image's own user."""
    os.chown(folder, USER, USER)
    for name in ("r", "s"):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, USER, USER)
    limits = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    # podman's own defaults for the two ulimits need a capability that root in a virtual machine may lack.
    limits += ["--network=host", "--pull=never", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"]
    settings = [
        f"--env=LASTHOP_RUN_DIR={folder / 'r'}",
        f"--env=LASTHOP_STATE_DIR={folder / 's'}",
        f"--volume={folder}:{folder}",
    ]
    return [
        "podman",
        *storage(),
        "--runtime=runc",
        "--cgroup-manager=cgroupfs",
        "run",
        "--rm",
        *limits,
        *settings,
        tag,
        "lasthop",
    ]


def _buildah(*command: str) -> str:
    return subprocess.run(["buildah", *storage(), *command], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
