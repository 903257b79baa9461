"""Kubeconfig and ServiceAccount become an address, a TLS context and an Authorization header."""

from __future__ import annotations

import base64
import ssl
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from lasthop.kubernetes import config
from lasthop.kubernetes.client import Client
from lasthop.kubernetes.config import from_kubeconfig, in_cluster, load
from lasthop.kubernetes.errors import ApiError, ConfigError
from tests.clock import Clock
from tests.fake_api import FakeApi

PLUGIN = """#!/bin/sh
echo run >> {folder}/runs
echo "$KUBERNETES_EXEC_INFO" > {folder}/info
cat <<END
{{"apiVersion": "client.authentication.k8s.io/{version}", "kind": "ExecCredential",
  "status": {{"token": "token-$(wc -l < {folder}/runs | tr -d ' ')", "expirationTimestamp": "{expires}"}}}}
END
"""


def mk_kubeconfig(folder: Path, user: dict[str, Any], name: str = "config", **cluster: Any) -> str:
    server = {"server": "https://127.0.0.1:6443", **cluster}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": f"{name}-context",
        "clusters": [{"name": f"{name}-cluster", "cluster": server}],
        "contexts": [
            {"name": f"{name}-context", "context": {"cluster": f"{name}-cluster", "user": f"{name}-user", "namespace": "shop"}}
        ],
        "users": [{"name": f"{name}-user", "user": user}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return str(path)


def mk_plugin(folder: Path, version: str = "v1", expires: str = "2999-01-01T00:00:00Z") -> dict[str, Any]:
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN.format(folder=folder, version=version, expires=expires))
    plugin.chmod(0o755)
    return {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(plugin), "provideClusterInfo": True}


async def test_token(tmp_path: Path) -> None:
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "abc"}))
    assert access.url == "https://127.0.0.1:6443" and access.namespace == "shop"
    assert await access.authorization() == "Bearer abc"
    assert access.ssl is not None and access.ssl.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_exec_plugin_of_every_version(tmp_path: Path, version: str) -> None:
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path, version)}))
    assert await access.authorization() == "Bearer token-1"
    assert await access.authorization() == "Bearer token-1"
    assert '"server": "https://127.0.0.1:6443"' in (tmp_path / "info").read_text()
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_exec_credential_is_renewed_before_it_expires(tmp_path: Path) -> None:
    soon, clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60)), Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path, expires=soon)}), clock=clock)
    clock.now += config.REFRESH_INTERVAL + 1
    assert await access.authorization() == "Bearer token-2"


async def test_exec_credential_is_renewed_after_a_401(tmp_path: Path) -> None:
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path)}), clock=clock)
    clock.now += config.RENEW_INTERVAL + 1
    assert await access.renew("Bearer token-1")
    assert await access.authorization() == "Bearer token-2"
    assert await access.renew("Bearer token-1")  # somebody else has done it
    assert (tmp_path / "runs").read_text() == "run\n" * 2


async def test_exec_plugin_that_is_missing_says_so_when_it_is_refused(tmp_path: Path, api: FakeApi) -> None:
    exec = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent/plugin"}
    api.token = "needed"
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": exec}, server=api.url))
    async with Client(access) as client:
        with pytest.raises(ApiError) as error:
            await client.get("/apis")
    assert error.value.status == 401


async def test_token_file_beside_the_kubeconfig_is_read_again_after_a_401(tmp_path: Path, api: FakeApi) -> None:
    (tmp_path / "token").write_text("first\n")
    api.token = "first"
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"tokenFile": "token"}, server=api.url), clock=clock)
    clock.now += config.RENEW_INTERVAL + 1
    async with Client(access) as client:
        await client.get("/apis")
        (tmp_path / "token").write_text("second\n")
        api.token = "second"
        await client.get("/apis")
    assert await access.authorization() == "Bearer second"


async def test_client_certificate_and_ca_from_data(tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("admin")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    user = {"client-certificate-data": _b64(chain), "client-key-data": _b64(leaf.private_key_pem.bytes())}
    path = mk_kubeconfig(tmp_path, user, **{"certificate-authority-data": _b64(ca.cert_pem.bytes())})
    access = from_kubeconfig(path)
    assert await access.authorization() is None
    assert access.ssl is not None and len(access.ssl.get_ca_certs()) == 1


async def test_server_name_and_proxy_are_taken_over(tmp_path: Path) -> None:
    path = mk_kubeconfig(tmp_path, {"token": "x"}, **{"tls-server-name": "kube.local", "proxy-url": "http://proxy:3128"})
    access = from_kubeconfig(path)
    assert (access.server_hostname, access.proxy) == ("kube.local", "http://proxy:3128")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com,127.0.0.1"}, None),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
    ],
)
async def test_without_a_proxy_of_its_own_the_environment_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "x"})).proxy == expected


async def test_contexts_of_several_files(tmp_path: Path) -> None:
    first = mk_kubeconfig(tmp_path, {"token": "one"}, "one")
    second = mk_kubeconfig(tmp_path, {"token": "two"}, "two")
    both = f"{first}:{second}"
    assert await from_kubeconfig(both, "two-context").authorization() == "Bearer two"
    with pytest.raises(ConfigError, match="no context three; there are one-context, two-context"):
        from_kubeconfig(both, "three")


def mk_pod(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (folder / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    (folder / "namespace").write_text("lasthop-system")
    (folder / "token").write_text("first\n")


async def test_in_cluster_token_is_read_again_after_a_401(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mk_pod(tmp_path, monkeypatch)
    without_the_library(monkeypatch)
    clock = Clock()
    access = in_cluster(tmp_path, clock)
    assert (access.url, access.namespace) == ("https://[fd00::1]:443", "lasthop-system")
    assert access.ssl is not None and access.ssl.verify_mode is ssl.CERT_REQUIRED and len(access.ssl.get_ca_certs()) == 1
    assert await access.authorization() == "Bearer first"
    (tmp_path / "token").write_text("second")
    clock.now += config.RENEW_INTERVAL + 1
    assert await access.renew("Bearer first")
    assert await access.authorization() == "Bearer second"


async def test_in_cluster_token_is_read_again_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mk_pod(tmp_path, monkeypatch)
    clock = Clock()
    access = in_cluster(tmp_path, clock)
    (tmp_path / "token").write_text("second")
    assert await access.authorization() == "Bearer first"
    clock.now += config.REFRESH_INTERVAL + 1
    assert await access.authorization() == "Bearer second"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_in_cluster_file_that_is_missing_or_empty_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mk_pod(tmp_path, monkeypatch)
    (tmp_path / name).write_text("")
    with pytest.raises(ConfigError, match=f"{name} is empty"):
        in_cluster(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ConfigError, match=f"No such file.*{name}"):
        in_cluster(tmp_path)


async def test_nothing_to_go_by_is_an_error_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load()
    (tmp_path / "broken").write_text("clusters: [")
    with pytest.raises(ConfigError, match="cannot read"):
        load(str(tmp_path / "broken"))


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_without_the_client_library_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mk_kubeconfig(tmp_path, {"token": "abc"})
    without_the_library(monkeypatch)
    with pytest.raises(ConfigError, match=r"pip install 'lasthop\[kubernetes\]'"):
        from_kubeconfig(path)


def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    for name in [name for name in sys.modules if name.startswith("kubernetes.")]:
        monkeypatch.delitem(sys.modules, name)
