"""Builds the command lines of the servers: each flag that is not a default, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance import certificates
from conformance.certificates import Authority
from conformance.children import Server
from conformance.network import API_SERVICE_IP, NODE_IP, SERVICE_RANGE

API_SERVER = f"https://{NODE_IP}:6443"
_ETCD = "http://127.0.0.1:2379"

# Those that make what the suite and Lasthop look at. Not nodelifecycle, podgc, taint-eviction: the node sends no
# heartbeats, so they would evict its pods.
_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "endpointslice-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "job-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
)


def etcd(program: Path, scratch: Path, logs: Path) -> Server:
    command: list[str | Path] = [program, "--data-dir", scratch / "etcd", "--log-level", "warn", "--unsafe-no-fsync"]
    command += ["--listen-client-urls", _ETCD, "--advertise-client-urls", _ETCD, "--listen-peer-urls", "http://127.0.0.1:2380"]
    return Server("etcd", command, logs / "etcd.log")


def apiserver(
    program: Path, scratch: Path, logs: Path, authority: Authority, admin_token: str, extra: Sequence[str]
) -> Server:
    names = ("kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost", "127.0.0.1", NODE_IP, API_SERVICE_IP)
    certificate, key = authority.server(*names)
    token_key = certificates.write(scratch / "tokens.key", certificates.token_key())
    tokens = certificates.write(scratch / "tokens.csv", f'{admin_token},admin,admin,"system:masters"\n'.encode())
    flags = {
        "etcd-servers": _ETCD,
        "bind-address": NODE_IP,
        "advertise-address": NODE_IP,
        "secure-port": "6443",
        "tls-cert-file": certificates.write(scratch / "apiserver.crt", certificate),
        "tls-private-key-file": certificates.write(scratch / "apiserver.key", key),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": token_key,
        "service-account-signing-key-file": token_key,
        "token-auth-file": tokens,
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": SERVICE_RANGE,
        "kubelet-preferred-address-types": "InternalIP",  # pod logs come from the node's address, not its name
        "allow-privileged": "true",
        # The suite comes in bursts from one client; fairness would make it wait.
        "enable-priority-and-fairness": "false",
        "max-requests-inflight": "0",
        "max-mutating-requests-inflight": "0",
    }
    command: list[str | Path] = [program, *(f"--{name}={value}" for name, value in flags.items()), *extra]
    return Server("kube-apiserver", command, logs / "kube-apiserver.log")


def controller_manager(program: Path, scratch: Path, logs: Path, kubeconfig: Path, authority: Authority) -> Server:
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "root-ca-file": certificates.write(scratch / "ca.crt", authority.pem),  # for the kube-root-ca.crt of each namespace
        "leader-elect": "false",
        "secure-port": "0",
        "controllers": ",".join(_CONTROLLERS),
        "kube-api-qps": "500",
        "kube-api-burst": "1000",
        "use-service-account-credentials": "false",
        "min-resync-period": "1h",
    }
    command: list[str | Path] = [program, *(f"--{name}={value}" for name, value in flags.items())]
    return Server("kube-controller-manager", command, logs / "kube-controller-manager.log")
