"""Kubeconfig and ServiceAccount become an address, a TLS context and an Authorization header."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from cryptography.hazmat.primitives import serialization

from lasthop.edge.kubernetes import config
from lasthop.edge.kubernetes.client import Client
from lasthop.edge.kubernetes.config import Access, from_kubeconfig, in_cluster, load
from lasthop.edge.kubernetes.credentials import bearer
from lasthop.edge.kubernetes.errors import ConfigError
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


async def authorization(access: Access) -> str:
    ((name, value),) = await access.headers()
    assert name == "Authorization"
    return value


async def test_token(tmp_path: Path) -> None:
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "abc"}))
    assert access.url == "https://127.0.0.1:6443" and access.namespace == "shop"
    assert await authorization(access) == "Bearer abc"
    assert access.ssl is not None and access.ssl.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_exec_plugin_of_every_version(tmp_path: Path, version: str) -> None:
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path, version)}))
    assert await authorization(access) == "Bearer token-1"
    assert await authorization(access) == "Bearer token-1"
    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://127.0.0.1:6443"}}
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_exec_credential_is_renewed_before_it_expires(tmp_path: Path) -> None:
    soon, clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 60)), Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path, expires=soon)}), clock=clock)
    clock.now += config.REFRESH_INTERVAL + 1
    assert await authorization(access) == "Bearer token-2"


async def test_exec_credential_is_renewed_after_a_401(tmp_path: Path) -> None:
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path)}), clock=clock)
    clock.now += config.RENEW_INTERVAL + 1
    assert await access.renew(bearer("token-1"))
    assert await authorization(access) == "Bearer token-2"
    assert await access.renew(bearer("token-1"))  # another task has done it
    assert (tmp_path / "runs").read_text() == "run\n" * 2


V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def printed(document: dict[str, Any]) -> str:
    return f"echo '{json.dumps(document)}'"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be run: No such file or directory; get it from the shop"),
        ("echo 'log in first' >&2; exit 3", "exited with code 3: log in first"),
        ("echo token", "did not print an ExecCredential"),
        (printed({"apiVersion": V1BETA1}), f"printed {V1BETA1} instead of {V1}"),
        (printed({"apiVersion": V1}), "neither a token nor a certificate"),
        (printed({"apiVersion": V1, "status": {"token": "x", "clientKeyData": "y"}}), "a key without a certificate"),
    ],
)
def test_a_failing_exec_plugin_reports_the_reason(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "plugin").write_text(f"#!/bin/sh\n{content}\n")
        (tmp_path / "plugin").chmod(0o755)
    plugin = {"apiVersion": V1, "command": "./plugin", "installHint": "get it from the shop\n"}
    with pytest.raises(ConfigError, match=rf"exec plugin \./plugin.*{message}"):
        from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": plugin}))


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1 is not supported"),
        ({"interactiveMode": "Always"}, "needs a terminal"),
    ],
)
def test_an_exec_plugin_that_cannot_run_reports_the_reason(tmp_path: Path, plugin: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig(mk_kubeconfig(tmp_path, {"exec": mk_plugin(tmp_path) | plugin}))
    assert not (tmp_path / "runs").exists()


async def test_exec_plugin_gets_arguments_and_variables_and_may_give_a_certificate(tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("admin")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems).decode()
    given = {"clientCertificateData": chain, "clientKeyData": leaf.private_key_pem.bytes().decode()}
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": given}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\ntest "$1-$REGION" = get-token-north || exit 7\ncat "$ANSWER"\n')
    plugin.chmod(0o755)
    variables = [{"name": "REGION", "value": "north"}, {"name": "ANSWER", "value": str(tmp_path / "answer")}]
    user = {"exec": {"apiVersion": V1, "command": str(plugin), "args": ["get-token"], "env": variables}}
    access = from_kubeconfig(mk_kubeconfig(tmp_path, user))
    assert await access.headers() == () and access.ssl is not None


async def test_credentials_that_cannot_be_renewed_are_shown_until_they_are_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"tokenFile": "token"}), clock=clock)
    (tmp_path / "token").unlink()
    clock.now += config.REFRESH_INTERVAL + 1
    assert await authorization(access) == "Bearer first"
    clock.now += config.RENEW_INTERVAL + 1
    with pytest.raises(ConfigError, match=r"tokenFile: .*No such file"):
        await access.renew(bearer("first"))


async def test_unchanged_streams_keep_their_connections(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"tokenFile": "token"}), clock=clock)
    (tmp_path / "token").write_text("second")
    context = access.ssl
    clock.now += config.REFRESH_INTERVAL + 1
    assert await authorization(access) == "Bearer second"
    assert access.ssl is context


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
    assert await authorization(access) == "Bearer second"


async def test_client_certificate_and_ca_from_data(tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf = ca.issue_cert("admin")
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    user = {"client-certificate-data": _b64(chain), "client-key-data": _b64(leaf.private_key_pem.bytes())}
    path = mk_kubeconfig(tmp_path, user, **{"certificate-authority-data": _b64(ca.cert_pem.bytes())})
    access = from_kubeconfig(path)
    assert await access.headers() == ()
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
    assert await authorization(from_kubeconfig(both, "two-context")) == "Bearer two"
    with pytest.raises(ConfigError, match="no context three; contexts: one-context, two-context"):
        from_kubeconfig(both, "three")


async def test_another_current_context_does_not_move_what_is_running(tmp_path: Path) -> None:
    first = mk_kubeconfig(tmp_path, {"token": "one"}, "one")
    second = mk_kubeconfig(tmp_path, {"token": "two"}, "two", server="https://elsewhere:6443")
    chosen = tmp_path / "chosen"
    chosen.write_text("current-context: one-context")
    clock = Clock()
    access = from_kubeconfig(f"{chosen}:{first}:{second}", clock=clock)
    chosen.write_text("current-context: two-context")
    clock.now += config.RENEW_INTERVAL + 1
    assert not await access.renew(bearer("one"))
    assert access.url == "https://127.0.0.1:6443"


async def test_the_first_file_with_a_value_wins_and_missing_files_are_ignored(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
        mk_kubeconfig(tmp_path / name, {"tokenFile": "token"}, server=f"https://{name}:6443")
    paths = f"{tmp_path}/missing:{tmp_path}/one/config::{tmp_path}/two/config"
    access = from_kubeconfig(paths)
    assert (access.url, await authorization(access)) == ("https://one:6443", "Bearer one")


async def test_impersonation(tmp_path: Path) -> None:
    user = {"token": "x", "as": "alice", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": {"Team/A": ["b"]}}
    assert dict(await from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "x"})).headers()).keys() == {"Authorization"}
    assert (await from_kubeconfig(mk_kubeconfig(tmp_path, user)).headers())[1:] == (
        ("Impersonate-User", "alice"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Extra-team%2Fa", "b"),
    )
    with pytest.raises(ConfigError, match="require `as`"):
        from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "x", "as-groups": ["system:masters"]}))


async def test_token_of_kubectl_and_its_renewal(tmp_path: Path) -> None:
    def mk(token: str) -> str:
        return mk_kubeconfig(tmp_path, {"auth-provider": {"name": "oidc", "config": {"id-token": token, "client-id": "x"}}})

    clock = Clock()
    access = from_kubeconfig(mk("first"), clock=clock)
    assert await authorization(access) == "Bearer first"
    mk("second")
    clock.now += config.REFRESH_INTERVAL + 1
    assert await authorization(access) == "Bearer second"


async def test_password(tmp_path: Path) -> None:
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"username": "admin", "password": "secret"}))
    assert await authorization(access) == f"Basic {_b64(b'admin:secret')}"


async def test_a_ca_with_a_comment_is_read_and_an_empty_one_is_not_the_systems(tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes("# Zürich\n".encode() + trustme.CA().cert_pem.bytes())
    path = mk_kubeconfig(tmp_path, {"token": "x"}, **{"certificate-authority": "ca.crt"})
    access = from_kubeconfig(path)
    assert access.ssl is not None and len(access.ssl.get_ca_certs()) == 1
    authority.write_bytes(b"")
    with pytest.raises(ConfigError, match="CA is not a certificate"):
        from_kubeconfig(path)


async def test_only_an_explicit_setting_disables_verification(tmp_path: Path) -> None:
    unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "x"}, **unverified))
    assert access.ssl is not None and access.ssl.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"client-certificate-data": "eA=="}, {}, "one of them is missing"),
        ({"client-certificate-data": "eA==", "client-key-data": "eA=="}, {}, "cannot be used"),
        ({"client-certificate": "none.crt", "client-key": "none.key"}, {}, "client-certificate: .*No such file.*none.crt"),
        ({"client-key-data": "%%%"}, {}, "client-key-data is not base64"),
        ({"tokenFile": "none"}, {}, "tokenFile: .*No such file"),
        ({"token": ["x"]}, {}, r"Expected `str`.*users\[0\]\.user\.token"),
        ({"auth-provider": {"name": "oidc"}}, {}, "auth-provider oidc has no id-token; log in with kubectl"),
        ({"auth-provider": {"name": "gcp"}}, {}, "auth-provider gcp is not known; .*use an exec plugin"),
        ({"token": "x"}, {"certificate-authority-data": "eA=="}, "CA is not a certificate"),
        ({"token": "x"}, {"server": ""}, "config-cluster has no server"),
    ],
)
def test_errors_in_a_kubeconfig_are_named(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig(mk_kubeconfig(tmp_path, user, **cluster))


def test_an_encrypted_key_is_refused_without_a_prompt(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("admin")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret"))
    user = {
        "client-certificate-data": _b64(leaf.cert_chain_pems[0].bytes()),
        "client-key-data": _b64(key.private_bytes(*form)),
    }
    with pytest.raises(ConfigError, match="is encrypted"):
        from_kubeconfig(mk_kubeconfig(tmp_path, user))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "current-context is not set; select one with --context .there are none"),
        ("contexts: [{name: a, context: {}}]", "select one with --context .contexts: a"),
        ("{contexts: [{name: a, context: {cluster: b}}], current-context: a}", "names the cluster 'b', which does not exist"),
        ("- a", "cannot read .*Expected `object`"),
    ],
)
def test_an_incomplete_kubeconfig_says_what_is_missing(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(ConfigError, match=message):
        from_kubeconfig(str(tmp_path / "config"))


def mk_pod(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (folder / "ca.crt").write_bytes(trustme.CA().cert_pem.bytes())
    (folder / "namespace").write_text("lasthop-system")
    (folder / "token").write_text("first\n")


async def test_in_cluster_token_is_read_again_after_a_401(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mk_pod(tmp_path, monkeypatch)
    clock = Clock()
    access = in_cluster(tmp_path, clock)
    assert (access.url, access.namespace) == ("https://[fd00::1]:443", "lasthop-system")
    assert access.ssl is not None and access.ssl.verify_mode is ssl.CERT_REQUIRED and len(access.ssl.get_ca_certs()) == 1
    assert await authorization(access) == "Bearer first"
    (tmp_path / "token").write_text("second")
    clock.now += config.RENEW_INTERVAL + 1
    assert await access.renew(bearer("first"))
    assert await authorization(access) == "Bearer second"


async def test_in_cluster_token_is_read_again_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mk_pod(tmp_path, monkeypatch)
    clock = Clock()
    access = in_cluster(tmp_path, clock)
    (tmp_path / "token").write_text("second")
    assert await authorization(access) == "Bearer first"
    clock.now += config.REFRESH_INTERVAL + 1
    assert await authorization(access) == "Bearer second"


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


def test_a_copy_for_another_event_loop_renews_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    access = from_kubeconfig(mk_kubeconfig(tmp_path, {"token": "one"}), clock=clock)
    twin = access.for_other_loop()
    assert (twin.url, twin.ssl, twin.namespace) == (access.url, access.ssl, access.namespace)
    mk_kubeconfig(tmp_path, {"token": "two"})

    async def renewed(client: Access) -> dict[str, str]:
        """Renews twice at once, so that one waits for the other on the lock, which belongs to this event loop from then on."""
        clock.now += 100
        assert await asyncio.gather(*(client.renew(bearer("one")) for _ in range(2))) == [True, True]
        return dict(await client.headers())

    assert asyncio.run(renewed(twin)) == {"Authorization": "Bearer two"}
    assert dict(access._credentials.headers) == {"Authorization": "Bearer one"}
    assert asyncio.run(renewed(access)) == {"Authorization": "Bearer two"}
