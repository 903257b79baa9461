"""Checks on a real cluster that the node behaves like a kubelet: `python -m conformance selftest`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from conformance.api import Api, ApiError, Object
from conformance.checks import Check, failed
from conformance.children import check, say
from conformance.cluster import Cluster
from conformance.servers import API_SERVER

NAMESPACE = "selftest"
# Serves the permissions of its own process, and the content of its Secret.
_SCRIPT = r"""
import http.server, json, os, pathlib, socket

def attempt(what):
    try:
        what()
        return "allowed"
    except OSError as error:
        return type(error).__name__

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
        body = json.dumps({
            "uid": os.getuid(), "gid": os.getgid(), "pid": os.getpid(), "host": socket.gethostname(),
            "capabilities": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
            "no_new_privileges": status["NoNewPrivs"].strip(),
            "write_root": attempt(lambda: open("/written", "w")), "write_empty": attempt(lambda: open("/empty/written", "w")),
            "secret": pathlib.Path("/secret/key").read_text(), "link": os.readlink("/secret/key"),
            "token": len(pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text()),
            "api": socket.gethostbyname("kubernetes.default.svc.cluster.local."),
            "env": {name: os.environ.get(name, "") for name in ("NAME", "FROM_SECRET", "EXPANDED")},
        }).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)

print("serving", flush=True)
http.server.HTTPServer(("", 80), Answer).serve_forever()
"""


async def check_node(cluster: Cluster, arguments: dict[str, Any]) -> int:
    await cluster.apply(_manifests())
    begin = time.monotonic()
    await cluster.deployment_ready(NAMESPACE, "web")
    # The endpoints of a Service follow the readiness of its pods, and the node's rules follow the endpoints.
    await _eventually(lambda: _answers(cluster))
    say(f"ready   after {time.monotonic() - begin:.1f} s")
    return 1 if await failed(cluster, CHECKS) else 0


async def non_root(cluster: Cluster) -> None:
    """A container runs as its user with all capabilities dropped and no new privileges."""
    answer = await _ask(await _cluster_ip(cluster))
    assert (answer["uid"], answer["gid"], answer["pid"]) == (65532, 65532, 1), answer
    assert answer["capabilities"] == ["0000000000000000"] * 5, answer
    assert answer["no_new_privileges"] == "1", answer


async def read_only(cluster: Cluster) -> None:
    """A read-only root file system is one, and an emptyDir in it can be written."""
    answer = await _ask(await _cluster_ip(cluster))
    assert (answer["write_root"], answer["write_empty"]) == ("OSError", "allowed"), answer


async def low_port(cluster: Cluster) -> None:
    """Non-root on port 80 needs the pod's sysctl: without it the same pod cannot bind."""
    pods = await _pods(cluster, "app=bare")
    await _eventually(lambda: _log_has(cluster, pods[0], "Permission denied"))


async def addresses(cluster: Cluster) -> None:
    """ClusterIP, LoadBalancer address and external IP lead to the pods, and an unused ClusterIP port is refused at once."""
    service = await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/web")
    balanced = service["status"]["loadBalancer"]["ingress"][0]["ip"]
    for address in (service["spec"]["clusterIP"], balanced, "10.245.201.7"):
        answer = await _ask(address)
        assert answer["host"].startswith("web-"), answer
    begin = time.monotonic()
    try:
        socket.create_connection((service["spec"]["clusterIP"], 9999), timeout=2).close()
        raise AssertionError("connected")
    except ConnectionRefusedError:
        assert time.monotonic() - begin < 0.5


async def dns_and_environment(cluster: Cluster) -> None:
    """DNS names of Services, fieldRef, secretKeyRef and $(VAR) work, and a bound token is mounted."""
    answer = await _ask(await _cluster_ip(cluster))
    assert answer["api"] == "10.96.0.1", answer
    assert answer["env"] == {"NAME": answer["host"], "FROM_SECRET": "one", "EXPANDED": f"{answer['host']}-$(UNKNOWN)"}, answer
    assert answer["token"] > 100, answer


async def rotation(cluster: Cluster) -> None:
    """A changed Secret shows in the volume within a second, by a swap of ..data."""
    address = await _cluster_ip(cluster)
    assert (await _ask(address))["link"] == "..data/key"
    await cluster.api.patch(f"/api/v1/namespaces/{NAMESPACE}/secrets/selftest", {"stringData": {"key": "two"}})
    begin = time.monotonic()
    while (await _ask(address))["secret"] != "two":
        assert time.monotonic() - begin < 1.5, "the old content after 1.5 s"
        await asyncio.sleep(0.05)


async def logs(cluster: Cluster) -> None:
    """Container logs come through the API server."""
    pods = await _pods(cluster, "app=web")
    await _eventually(lambda: _log_has(cluster, pods[0], "serving"))


async def rbac(cluster: Cluster) -> None:
    """A ServiceAccount's token has the ServiceAccount's rights and no more."""
    token = await cluster.service_account_token(NAMESPACE, "reader")
    async with Api(API_SERVER, cluster.authority.pem, token) as api:
        await api.get(f"/api/v1/namespaces/{NAMESPACE}/services")
        try:
            await api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets")
            raise AssertionError("it can read Secrets")
        except ApiError as error:
            assert error.status == 403


async def bridge(cluster: Cluster) -> None:
    """The node keeps its link address when pods come and go, so that none loses it."""
    kept = await _bridge_address()
    await check("ip", "-batch", "-", stdin="link add low address 02:00:00:00:00:01 type veth\nlink set low master br0 up\n")
    joined = await _bridge_address()
    await check("ip", "link", "delete", "low")
    assert kept == joined == await _bridge_address(), (kept, joined)


async def crash(cluster: Cluster) -> None:
    """A container that is killed is started again, and its pod is ready again."""
    (pod,) = [pod for pod in cluster.node.pods.values() if pod.pod["metadata"]["name"].startswith("web-")][:1]
    await check("kill", "-9", str(pod.containers[0].first_process))

    async def restarted() -> bool:
        status = (await cluster.api.get(pod.path))["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == 1 and status["ready"])

    await _eventually(restarted)


async def api_server_away(cluster: Cluster) -> None:
    """Pods and Services keep working while kube-apiserver is killed, and the node goes on when it is back."""
    address = await _cluster_ip(cluster)
    await cluster.apiserver.kill()
    assert (await _ask(address))["uid"] == 65532
    await cluster.apiserver.start()
    await cluster.apiserver_ready()
    await cluster.api.patch(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web", {"spec": {"replicas": 3}})
    await cluster.deployment_ready(NAMESPACE, "web")


async def gone(cluster: Cluster) -> None:
    """A deleted Namespace is gone with its pods and their processes, volumes and interfaces."""
    await cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}")

    async def away() -> bool:
        try:
            await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}")
            return False
        except ApiError as error:
            return error.status == 404

    await _eventually(away, 30)
    assert not cluster.node.pods, cluster.node.pods
    links = json.loads(await check("ip", "-json", "link", "show", "type", "veth"))
    assert not links, links
    assert not [folder for folder in (cluster.scratch / "pods").iterdir() if folder.is_dir()]


CHECKS: tuple[Check, ...] = (
    non_root,
    read_only,
    low_port,
    addresses,
    dns_and_environment,
    rotation,
    logs,
    rbac,
    bridge,
    crash,
    api_server_away,
    gone,
)


async def _bridge_address() -> str:
    (link,) = json.loads(await check("ip", "-json", "link", "show", "br0"))
    address: str = link["address"]
    return address


async def _answers(cluster: Cluster) -> bool:
    with contextlib.suppress(aiohttp.ClientConnectionError):
        return bool(await _ask(await _cluster_ip(cluster)))
    return False


async def _ask(address: str) -> dict[str, Any]:
    timeout = aiohttp.ClientTimeout(total=3)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"http://{address}:8080/") as response:
        document: dict[str, Any] = await response.json(content_type=None)
        return document


async def _cluster_ip(cluster: Cluster) -> str:
    address: str = (await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/web"))["spec"]["clusterIP"]
    return address


async def _pods(cluster: Cluster, selector: str) -> list[str]:
    listed = await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=selector)
    return [item["metadata"]["name"] for item in listed["items"]]


async def _log_has(cluster: Cluster, pod: str, text: str) -> bool:
    return text in await cluster.api.text(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log")


async def _eventually(done: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not await done():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s"
        await asyncio.sleep(0.1)


def _manifests() -> list[Object]:
    rule = {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    sysctls = [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]
    ports = [{"name": "http", "port": 8080, "targetPort": 80}]
    spec = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports, "externalIPs": ["10.245.201.7"]}
    return [
        _object("v1", "Namespace", NAMESPACE),
        _object("v1", "Secret", "selftest", stringData={"key": "one"}),
        _object("v1", "ServiceAccount", "reader"),
        _object("rbac.authorization.k8s.io/v1", "Role", "reader", rules=[rule]),
        _object("rbac.authorization.k8s.io/v1", "RoleBinding", "reader", roleRef=role, subjects=[subject]),
        _object("v1", "Service", "web", spec=spec),
        _deployment("web", 2, {"sysctls": sysctls}),
        _deployment("bare", 1, {}),
    ]


def _object(version: str, kind: str, name: str, **content: Any) -> Object:
    namespace = {} if kind == "Namespace" else {"namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace}, **content}


def _deployment(name: str, replicas: int, security: dict[str, Any]) -> Object:
    container = {
        "name": "web",
        "image": "lasthop:test",
        "command": ["python", "-c", _SCRIPT],
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "selftest", "key": "key"}}},
            {"name": "EXPANDED", "value": "$(NAME)-$(UNKNOWN)"},
        ],
        "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1},
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "secret", "mountPath": "/secret"}, {"name": "empty", "mountPath": "/empty"}],
    }
    pod = {
        "containers": [container],
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True, **security},
        "volumes": [{"name": "secret", "secret": {"secretName": "selftest"}}, {"name": "empty", "emptyDir": {}}],
        "terminationGracePeriodSeconds": 1,
    }
    template = {"metadata": {"labels": {"app": name}}, "spec": pod}
    return _object(
        "apps/v1",
        "Deployment",
        name,
        spec={"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    )
