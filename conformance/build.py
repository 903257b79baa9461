"""Builds the cluster's programs from Go modules into the user's cache folder: once, each separately, resumable.

    go/<module>/go.mod, go.sum  ->  ~/.cache/lasthop/conformance/<module>-<hash>/<program>
                                                                                 crds/, unless it is the current release

The hash covers the module's files, so a changed version is built anew and an unchanged one never again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.preflight import Missing, find
from conformance.releases import CURRENT, Release
from tools.progress import Progress

MODULES = Path(__file__).parent / "go"
CURRENT_CRDS = Path(__file__).parent.parent / "src" / "lasthop" / "base" / "api" / "crds" / "gateway-api"
TOOLCHAIN = "go1.27.3"  # the suite v1.7.0 requires 1.27; `go` fetches and checks this toolchain by itself
KUBERNETES_VERSION = "v1.36.3"


@dataclass(frozen=True)
class Program:
    name: str
    module: str  # folder under go/
    package: str
    test: bool = False  # built by `go test -c`
    modules: Path = MODULES  # where that folder is
    ldflags: str = "-s -w"


# Without the -X flags the servers call themselves v0.0.0-master+$Format:%H$.
_VERSION = "k8s.io/component-base/version"
_KUBERNETES_LDFLAGS = f"-s -w -X {_VERSION}.gitVersion={KUBERNETES_VERSION} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"

SERVERS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", ldflags=_KUBERNETES_LDFLAGS),
    Program(
        "kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", ldflags=_KUBERNETES_LDFLAGS
    ),
)

HELM = Program("helm", "helm", "helm.sh/helm/v4/cmd/helm", ldflags="-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1")


def programs(release: Release) -> tuple[Program, ...]:
    """All that a run of the release's suite needs."""
    return (
        *SERVERS,
        *([Program("coredns", "coredns", ".")] if release.coredns else ()),
        Program("echo-basic", release.module, release.echo_basic),
        _suite(release),
    )


def _suite(release: Release) -> Program:
    return Program("conformance.test", release.module, ".", test=True)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lasthop" / "conformance"


def path_of(program: Program, cache: Path | None = None) -> Path:
    digest = hashlib.sha256(f"{TOOLCHAIN} {program.ldflags}\0".encode())
    folder = program.modules / program.module
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return (cache or cache_folder()) / f"{program.module}-{digest.hexdigest()[:12]}" / program.name


def paths(release: Release) -> dict[str, Path]:
    return {program.name: path_of(program) for program in programs(release)}


def crds_of(release: Release) -> Path:
    """The folder with the release's CRDs, a folder for each channel."""
    return CURRENT_CRDS if release == CURRENT else path_of(_suite(release)).parent / "crds"


def build(release: Release = CURRENT) -> dict[str, Path]:
    """The path of every program, built if it is not there yet."""
    todo = [program for program in programs(release) if not path_of(program).exists()]
    if todo:
        names = ", ".join(program.name for program in todo)
        print(
            f"Building {names} into {cache_folder()}: about 11 minutes in all on 2 cores, once. It can be interrupted.",
            flush=True,
        )
        for number, program in enumerate(todo, 1):
            _build(_go(), program, f"[{number}/{len(todo)}] {program.name}")
    if not crds_of(release).exists():
        _copy_crds(_go(), release)
    return paths(release)


def build_one(program: Program) -> Path:
    """Returns the path of a program of another module, built if it is not there yet."""
    if not path_of(program).exists():
        _build(_go(), program, program.name)
    return path_of(program)


def _go() -> str:
    if go := find("go"):
        return go
    raise Missing("Building them needs Go, 1.21 or newer (it fetches the toolchain it needs by itself): install it")


def _copy_crds(go: str, release: Release) -> None:
    """They are in the same Go module as the API's types, which the suite is built from: checked by the same go.sum."""
    target, folder = crds_of(release), MODULES / release.module
    command = [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"]
    listed = subprocess.run(command, cwd=folder, env=_environment(), stdout=subprocess.PIPE, text=True)
    if listed.returncode:
        raise Missing(f"`{' '.join(command)}` in {folder} failed (see above)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".crds-") as scratch:
        for channel in ("standard", "experimental"):
            (Path(scratch) / "crds" / channel).mkdir(parents=True)
            for file in sorted((Path(listed.stdout.strip()) / "config" / "crd" / channel).glob("gateway.*.yaml")):
                shutil.copyfile(file, Path(scratch) / "crds" / channel / file.name)
        (Path(scratch) / "crds").rename(target)


def _environment() -> dict[str, str]:
    # CGO off: static programs, which run in a container root without libraries, and no C compiler is needed.
    return os.environ | {"GOTOOLCHAIN": TOOLCHAIN, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}


def _build(go: str, program: Program, label: str) -> None:
    target = path_of(program)
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = _environment()
    progress = Progress(label)
    progress.say("fetching modules")
    folder = program.modules / program.module
    listing = [go, "list", "-deps", *(["-test"] if program.test else []), program.package]
    listed = subprocess.run(listing, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if listed.returncode:
        raise Missing(f"{program.name}: `{' '.join(listing)}` in {folder} failed (see above)")
    total = len(listed.stdout.splitlines())
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{program.name}-") as scratch:
        output = Path(scratch) / program.name
        command = [go, "test", "-c"] if program.test else [go, "build"]
        command += ["-v", "-trimpath", "-ldflags", program.ldflags, "-o", str(output), program.package]
        for built, package in enumerate(_lines(command, folder, environment), 1):
            progress.step(f"{built} of at most {total} packages, {package}")
        output.rename(target)  # in the same folder, so atomic: a program that is there is whole
    progress.say(f"done, {target.stat().st_size >> 20} MB")


def _lines(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Shows the output of `go` (with -v, one line per compiled package); its last lines if it fails."""
    last: list[str] = []
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            last = [*last[-19:], line.rstrip()]
            yield last[-1]
    if process.returncode:
        raise Missing(f"`{' '.join(command)}` in {folder} failed:\n" + "\n".join(last))
