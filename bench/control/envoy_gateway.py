"""Builds Envoy Gateway v1.9.1, unmodified, and configures it for a Kubernetes API server and proxies on this host."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

from bench.control import objects
from conformance.build import Program, build_one, path_of
from conformance.preflight import Missing, find
from lasthop.edge.proxy.binary import find_envoy

VERSION = "v1.9.1"
MODULE = "github.com/envoyproxy/gateway"
CONTROLLER_NAME = "gateway.envoyproxy.io/gatewayclass-controller"
NAMESPACE = "envoy-gateway-system"
API = "gateway.envoyproxy.io/v1alpha1"
PROGRAM = Program("envoy-gateway", "envoy-gateway", f"{MODULE}/cmd/envoy-gateway", modules=Path(__file__).parent / "go")
PRIVATE_ROOT = Path(__file__).parent / "private_root.sh"


def build() -> None:
    """Builds the program and copies its CRDs, which are in the same Go module, unless both are in the cache."""
    program = build_one(PROGRAM)
    if not crds().exists():
        listing = [find("go") or "go", "list", "-m", "-f", "{{.Dir}}", MODULE]
        listed = subprocess.run(listing, cwd=PROGRAM.modules / PROGRAM.module, stdout=subprocess.PIPE, text=True)
        if listed.returncode:
            raise Missing(f"`{' '.join(listing)}` failed (see above)")
        source = Path(listed.stdout.strip()) / "charts" / "gateway-helm" / "charts" / "crds" / "crds" / "generated"
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            shutil.copytree(source, Path(scratch) / "crds", copy_function=shutil.copyfile)
            (Path(scratch) / "crds").rename(crds())


def crds() -> Path:
    return path_of(PROGRAM).parent / "crds"


def configure(home: Path, namespaces: list[str]) -> Path:
    """Writes its configuration and certificates, and puts the Envoy that Lasthop uses where it looks for one."""
    envoy = find_envoy()
    binary = home / "data" / "envoy-versions" / version(envoy.version) / "bin" / "envoy"
    binary.parent.mkdir(parents=True)
    shutil.copy(envoy.path, binary)
    subprocess.run([path_of(PROGRAM), "certgen", "--local", "--config-home", home / "config"], check=True, capture_output=True)
    folders = {"configHome": "config", "dataHome": "data", "stateHome": "state", "runtimeDir": "run"}
    kubernetes = {
        "watch": {"type": "Namespaces", "namespaces": namespaces},
        # Kind to it: shipped are 50 and 100, which its first start would wait for.
        "client": {"rateLimit": {"qps": 2000, "burst": 4000}},
        "leaderElection": {"disable": True},
    }
    host = {name: str(home / folder) for name, folder in folders.items()}
    content = {
        "apiVersion": API,
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": CONTROLLER_NAME},
        "logging": {"level": {"default": "error"}},  # kind to it: at `info` it prints every status
        "provider": {
            "type": "Custom",
            "custom": {
                "resource": {"type": "Kubernetes", "kubernetes": kubernetes},
                "infrastructure": {"type": "Host", "host": host},
            },
        },
    }
    path = home / "envoy-gateway.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def command(home: Path, config: Path) -> list[str | Path]:
    """Its xDS certificates are read from /certs, which must not be made on the machine itself."""
    root = home / "root"
    root.mkdir(exist_ok=True)
    certificates = home / "config" / "certs" / "envoy-gateway"
    private: list[str | Path] = ["unshare", "--mount", "--propagation", "private", "sh", PRIVATE_ROOT, root, certificates]
    return [*private, path_of(PROGRAM), "server", "--config-path", config]


def gateway_class() -> objects.Object:
    spec = {"controllerName": CONTROLLER_NAME}
    return {"apiVersion": objects.API, "kind": "GatewayClass", "metadata": {"name": "envoy-gateway"}, "spec": spec}


def envoy_proxy(namespace: str) -> objects.Object:
    host = {"envoyVersion": version(find_envoy().version)}
    return objects.mk(namespace, API, "EnvoyProxy", "proxy", spec={"provider": {"type": "Host", "host": host}})


def version(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))
