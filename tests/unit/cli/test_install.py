"""`lasthop install` names the cluster, and reads the existing installation before it changes anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme
import yaml
from click.testing import CliRunner, Result

from conformance import kubeconfig
from lasthop.cli.main import main
from lasthop.run.infra.kubernetes import installation
from lasthop.run.infra.kubernetes.installation import Options
from tests.fake_api import FakeApi, serving
from tests.ports import free_port


def test_the_cluster_is_named_before_anything_is_done_to_it(tmp_path: Path) -> None:
    server = f"https://127.0.0.1:{free_port()}"
    path = kubeconfig.write(tmp_path / "config", server, trustme.CA().cert_pem.bytes(), "a token")
    result = CliRunner().invoke(main, ["install", "--kubeconfig", str(path)])
    assert result.exit_code == 1
    first, last = result.stderr.splitlines()
    assert first == f"Installing into the cluster of context lasthop of {path}"
    assert server in last and "applied" not in result.stdout


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    async with serving(FakeApi()) as fake_api:
        context = {"name": "dev", "context": {"cluster": "fake", "user": "me"}}
        users = [{"name": "me", "user": {"token": "t"}}]
        clusters = [{"name": "fake", "cluster": {"server": fake_api.url}}]
        written = {"clusters": clusters, "users": users, "contexts": [context], "current-context": "dev"}
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(written))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        for document in installation.documents(Options("i", watched=("shop",))):
            group, _, version = document["apiVersion"].rpartition("/")
            plural = installation.path(document).split("/")[-2]
            fake_api.served.add((group, version, plural))
            fake_api.kinds.setdefault(plural, document["kind"])
        fake_api.served |= {("rbac.authorization.k8s.io", "v1", plural) for plural in installation.RBAC}
        fake_api.put("namespaces", {"metadata": {"name": "shop"}})
        yield fake_api


async def install(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["install", *arguments])


def written(api: FakeApi) -> list[str]:
    return [plural for verb, plural, _ in api.requests if verb not in ("get", "list")]


async def test_a_missing_namespace_is_reported_before_anything_is_applied(api: FakeApi) -> None:
    result = await install("--watch", "shop", "--watch", "nowhere")
    assert (result.exit_code, written(api)) == (1, [])
    assert "namespace nowhere does not exist" in result.stderr


async def test_an_installation_for_some_namespaces_does_not_get_rights_in_all_of_them_by_an_upgrade(api: FakeApi) -> None:
    assert (await install("--watch", "shop")).exit_code == 0
    api.requests.clear()
    refused = await install("--image", "registry.example.com/lasthop:2")
    assert (refused.exit_code, written(api)) == (1, [])
    assert "watches only shop; add --watch shop to leave it so, or -A" in refused.stderr
    assert (await install("--watch", "shop", "--image", "registry.example.com/lasthop:2")).exit_code == 0
    widened = await install("-A")
    assert widened.exit_code == 0 and "clusterrolebinding/lasthop-gateways applied" in widened.stdout
    assert (await install()).exit_code == 0, "it watches all now"


async def test_an_installation_by_helm_is_left_to_helm(api: FakeApi) -> None:
    annotations = {"meta.helm.sh/release-name": "edge"}
    api.put(
        "deployments", {"metadata": {"name": "lasthop-controller", "namespace": "lasthop-system", "annotations": annotations}}
    )
    result = await install()
    assert (result.exit_code, written(api)) == (1, [])
    assert "change it with helm upgrade edge" in result.stderr


@pytest.mark.parametrize("arguments", [["--image", ""], ["--image", "a b"], ["-A", "--watch", "shop"]])
def test_arguments_that_cannot_be_meant_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["install", "--dry-run", *arguments]).exit_code == 2
