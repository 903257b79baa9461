"""`lasthop doctor`: its report about this machine and about a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from lasthop.cli.doctor import machine
from lasthop.cli.doctor.result import CheckState
from lasthop.cli.main import main
from tests.folders import BASE, lasthop
from tests.ports import free_port

ROUTES = ("backendtlspolicies", "httproutes", "gateways")


def checks(*args: str | Path) -> dict[str, dict[str, str]]:
    result = lasthop("doctor", *args, "-o", "json")
    return {check["what"]: check for check in json.loads(result.stdout)}


def test_this_machine_has_an_envoy(tmp_path: Path) -> None:
    assert checks()["Envoy"]["verdict"] == "ok"


def test_a_missing_envoy_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTHOP_ENVOY", "/does/not/exist")
    result = lasthop("doctor")
    assert result.exit_code == 1
    assert "✗ Envoy: /does/not/exist does not exist\n    Correct LASTHOP_ENVOY, which names it" in result.output


def test_an_envoy_that_does_not_run_gives_a_readable_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "envoy").write_bytes(b"no program")
    (tmp_path / "envoy").chmod(0o755)
    monkeypatch.setenv("LASTHOP_ENVOY", str(tmp_path / "envoy"))
    assert checks()["Envoy"]["found"] == f"{tmp_path / 'envoy'} does not run: Exec format error"


def test_a_port_of_another_process_is_a_failure(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    text = BASE.replace("port: 80,", f"port: {port},").replace(
        "gatewayClassName: lasthop", "gatewayClassName: lasthop\n  addresses: [{value: 127.0.0.1}]"
    )
    second = text.split("---\n")[1].replace("name: web,", "name: more,").replace(f"port: {port},", f"port: {other},")
    (tmp_path / "base.yaml").write_text(f"{text}---\n{second}")
    with socket.create_server(("127.0.0.1", port)):
        by_name = checks(tmp_path)
    assert by_name[f"port 127.0.0.1:{port}"]["verdict"] == "failed"
    assert "is in use by" in by_name[f"port 127.0.0.1:{port}"]["found"]
    assert by_name[f"port 127.0.0.1:{other}"]["verdict"] == "ok"


def test_a_folder_with_a_broken_file_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [\n")
    assert checks(tmp_path)[f"folder {tmp_path}"]["remedy"] == f"lasthop check {tmp_path}"


def test_a_clock_of_the_past_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    (clock,) = [check for check in machine.machine(None) if check.what == "clock"]
    assert clock.verdict is CheckState.FAILED


def test_few_watches_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "WATCHES", 10**9)
    (inotify,) = [check for check in machine.machine(None) if check.what == "inotify"]
    assert (inotify.verdict, "every 10 s" in inotify.found) == (CheckState.WARNING, True)


def test_exhausted_inotify_instances_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_can_watch", lambda: False)
    (inotify,) = [check for check in machine.machine(None) if check.what == "inotify"]
    assert (inotify.verdict, "all in use" in inotify.found) == (CheckState.WARNING, True)
    assert inotify.remedy.startswith("sysctl fs.inotify.max_user_instances="), "and no other limit, which it might lower"


def test_a_ca_bundle_that_a_variable_names_wrongly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/does/not/exist")
    check = checks()["CA bundle"]
    assert (check["verdict"], "SSL_CERT_FILE names /does/not/exist" in check["found"]) == ("warning", True)
    assert "unset it" in check["remedy"]


def test_directories_that_cannot_be_used_are_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LASTHOP_STATE_DIR", str(tmp_path / "file"))
    assert "cannot be written" in checks()["state directory"]["found"]
    monkeypatch.setenv("LASTHOP_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(machine, "FULL_BYTES", 10**18)
    assert "is full" in checks()["state directory"]["found"]


def test_a_directory_below_one_that_may_not_be_looked_into_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `/root/state` for another user. Only `stat` is refused here: the tests may run as root."""
    monkeypatch.setenv("LASTHOP_STATE_DIR", "/closed/state")
    stat = os.stat

    def refuse(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith("/closed/"):
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", refuse)
    assert checks()["state directory"]["what"]


# --- a cluster -------------------------------------------------------------------------------------------------------


def crd(name: str, release: str = "v1.7.0", channel: str = "standard") -> dict[str, Any]:
    annotations = {"gateway.networking.k8s.io/bundle-version": release, "gateway.networking.k8s.io/channel": channel}
    return {"metadata": {"name": f"{name}.gateway.networking.k8s.io", "annotations": annotations}}


class Cluster:
    """The few responses of an API server that doctor needs."""

    def __init__(self) -> None:
        self.crds = [crd(name) for name in ROUTES]
        self.answers: dict[str, Any] = {}
        self.denied: set[str] = set()
        self.asked: list[dict[str, str]] = []
        self.statuses: dict[str, int] = {}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        if status := self.statuses.get(path):
            return web.json_response({"kind": "Status", "code": status, "reason": "Why", "message": "as said"}, status=status)
        if path.startswith("/apis/authorization.k8s.io"):
            attributes = (await request.json())["spec"]["resourceAttributes"]
            self.asked.append(attributes)
            return web.json_response({"status": {"allowed": attributes["resource"] not in self.denied}})
        if path == "/version":
            return web.json_response({"gitVersion": "v1.35.0"})
        if path.endswith("/customresourcedefinitions"):
            return web.json_response({"items": self.crds})
        if path in self.answers:
            return web.json_response(self.answers[path])
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no"}, status=404)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


DEPLOYMENT = "/apis/apps/v1/namespaces/lasthop-system/deployments/lasthop-controller"


def deployment(*args: str) -> dict[str, Any]:
    pod = {"serviceAccountName": "lasthop-controller", "containers": [{"args": list(args)}]}
    return {"spec": {"replicas": 1, "template": {"spec": pod}}, "status": {"readyReplicas": 1}}


async def of(cluster: Cluster, tmp_path: Path, *args: str) -> dict[str, dict[str, str]]:
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
        return await asyncio.to_thread(checks, "--kubeconfig", tmp_path / "kubeconfig", *args)
    finally:
        await runner.cleanup()


async def test_crds_of_one_known_release_are_fine(cluster: Cluster, tmp_path: Path) -> None:
    by_name = await of(cluster, tmp_path)
    assert by_name["CRDs of Gateway API"]["found"] == "v1.7.0 (standard), 3 CRDs"
    assert by_name["API server"]["found"].endswith("Kubernetes v1.35.0")
    assert by_name["your rights"]["verdict"] == "ok"


async def test_without_crds_nothing_works_and_one_error_reports_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.crds = []
    by_name = await of(cluster, tmp_path)
    assert by_name["CRDs of Gateway API"]["verdict"] == "failed"
    assert "kubectl apply --server-side -f https://" in by_name["CRDs of Gateway API"]["remedy"]
    assert not [what for what in by_name if "GatewayClass" in what]
    assert "rights of the controller" not in by_name, "there is no controller that would need them"


async def test_crds_without_backend_tls_policies_are_a_failure(cluster: Cluster, tmp_path: Path) -> None:
    cluster.crds = [crd("gateways")]
    assert (await of(cluster, tmp_path))["BackendTLSPolicy"]["verdict"] == "failed"


async def test_a_crd_in_a_version_that_lasthop_does_not_read_is_a_failure(cluster: Cluster, tmp_path: Path) -> None:
    cluster.crds = [{**crd(name), "spec": {"versions": [{"name": "v1alpha2", "served": True}]}} for name in ROUTES]
    check = (await of(cluster, tmp_path))["BackendTLSPolicy"]
    assert (check["verdict"], "v1alpha2, and Lasthop reads v1, v1alpha3" in check["found"]) == ("failed", True)


@pytest.mark.parametrize(
    ("status", "text", "remedy"),
    [
        (401, "refuses the credentials of context c", "Log in again, or choose another --context"),
        (503, "answers 503 Why: as said", "Try again"),
    ],
)
async def test_an_api_server_that_does_not_let_us_in_is_a_finding(
    cluster: Cluster, tmp_path: Path, status: int, text: str, remedy: str
) -> None:
    cluster.statuses["/version"] = status
    by_name = await of(cluster, tmp_path)
    assert list(by_name) == ["API server"]
    assert (by_name["API server"]["verdict"], by_name["API server"]["remedy"]) == ("failed", remedy)
    assert text in by_name["API server"]["found"]


async def test_only_a_missing_right_is_called_one(cluster: Cluster, tmp_path: Path) -> None:
    cluster.statuses |= {"/apis/gateway.networking.k8s.io/v1/gatewayclasses": 500, DEPLOYMENT: 403}
    by_name = await of(cluster, tmp_path)
    assert "RBAC" in by_name["controller in lasthop-system"]["remedy"]
    assert "cannot be read: 500" in by_name["GatewayClass"]["found"] and "RBAC" not in by_name["GatewayClass"]["remedy"]


async def test_rights_that_are_missing_are_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.denied = {"secrets"}
    cluster.answers[DEPLOYMENT] = deployment("--namespaces=")
    by_name = await of(cluster, tmp_path, "-A")
    assert "you may not list secrets in all namespaces" in by_name["your rights"]["found"]
    assert "may not create secrets in namespace lasthop-system" in by_name["rights of the controller"]["found"]
    assert {
        "resource": "gateways",
        "subresource": "status",
        "verb": "update",
        "group": "gateway.networking.k8s.io",
    } in cluster.asked


async def test_rights_are_reviewed_in_the_needed_namespaces(cluster: Cluster, tmp_path: Path) -> None:
    cluster.answers[DEPLOYMENT] = deployment("--namespaces=shop,blog")
    by_name = await of(cluster, tmp_path, "-n", "team")
    assert by_name["your rights"]["found"] == "you may list every kind in namespace team"
    assert by_name["rights of the controller"]["verdict"] == "ok"
    written = [query for query in cluster.asked if query["resource"] == "deployments"]
    assert {query.get("namespace") for query in written} == {"shop", "blog"}


async def test_a_namespace_that_the_controller_does_not_watch_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    cluster.answers[DEPLOYMENT] = deployment("--namespaces=shop,blog")
    check = (await of(cluster, tmp_path, "-n", "team"))["controller in lasthop-system"]
    assert check["verdict"] == "warning"
    assert check["found"] == "it watches only shop, blog; edits in namespace team have no effect"
    assert check["remedy"] == "If it should: lasthop install --watch shop --watch blog --watch team"
    for options in (("-n", "blog"), ("-A",)):
        assert (await of(cluster, tmp_path, *options))["controller in lasthop-system"]["verdict"] == "ok"


def test_as_a_plugin_of_kubectl_it_looks_at_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    result = CliRunner().invoke(main, ["doctor", "-o", "json"], prog_name="kubectl lasthop")
    assert [check["what"] for check in json.loads(result.stdout)] == ["API server"]
    assert list(checks()) == ["API server"], "$KUBECONFIG names a cluster for every command"
    assert "Envoy" in checks(tmp_path), "a folder is of this machine"
    monkeypatch.delenv("KUBECONFIG")
    assert "Envoy" in checks()


def test_a_folder_and_a_cluster_are_one_too_many(tmp_path: Path) -> None:
    result = lasthop("doctor", tmp_path, "--context", "prod")
    assert (result.exit_code, "remove one of them" in result.output) == (2, True)


async def test_a_class_that_nobody_accepted_points_to_the_controller(cluster: Cluster, tmp_path: Path) -> None:
    item = {"metadata": {"name": "lasthop"}, "spec": {"controllerName": "lasthop.dev/gateway-controller"}}
    cluster.answers["/apis/gateway.networking.k8s.io/v1/gatewayclasses"] = {"items": [item]}
    check = (await of(cluster, tmp_path))["GatewayClass lasthop"]
    assert (check["verdict"], "no controller has accepted it" in check["found"]) == ("failed", True)


def test_a_cluster_that_the_environment_names_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    assert "absent" in CliRunner().invoke(main, ["doctor"]).output
