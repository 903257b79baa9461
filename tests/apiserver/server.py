"""A real etcd and kube-apiserver on loopback, with the CRDs: no node, no controllers, no root."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from conformance import build, certificates, kubeconfig
from conformance.children import Server
from conformance.releases import CURRENT
from lasthop.base.api.documents import Json
from tests.ports import free_port

PROGRAMS = build.paths(CURRENT)
BUILT = all(PROGRAMS[name].exists() for name in ("etcd", "kube-apiserver"))
CRDS = Path(build.__file__).parents[1] / "src" / "lasthop" / "base" / "api" / "crds"
PATIENCE = 100.0


class ApiServer:
    def __init__(self, url: str, config: Path, limited: Path, session: aiohttp.ClientSession, process: Server) -> None:
        """`limited` is the kubeconfig of the user `lasthop`, who may do what a role allows."""
        self.url, self.kubeconfig, self.limited, self._session, self._process = url, config, limited, session, process

    async def restart(self) -> None:
        """Stops the API server and starts it again, with the same content."""
        await self._process.stop()
        await self._process.start()
        await self.until("/apis/gateway.networking.k8s.io/v1/backendtlspolicies")

    async def ask(self, method: str, path: str, body: Json | None = None, **params: str) -> tuple[int, Json, list[str]]:
        """Returns the status, the answer and the texts of its warnings."""
        async with self._session.request(method, f"{self.url}{path}", json=body, params=params) as response:
            warnings = [text.split('"', 1)[1].rstrip('"') for text in response.headers.getall("Warning", [])]
            return response.status, await response.json(content_type=None), warnings

    async def create(self, path: str, *documents: Json) -> None:
        for document in documents:
            status, answer, _ = await self.ask("POST", path, document)
            assert status == 201, answer

    async def until(self, path: str) -> None:
        """Waits until a path is served."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(aiohttp.ClientError, ValueError):
                    if (await self.ask("GET", path))[0] == 200:
                        return
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[ApiServer]:
    authority, token, port = certificates.Authority(), secrets.token_hex(16), free_port()
    limited = secrets.token_hex(16)
    tokens = f'{token},admin,admin,"system:masters"\n{limited},lasthop,lasthop\n'
    store, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    certificate, key = authority.server("localhost", "127.0.0.1")
    token_key = certificates.write(folder / "tokens.key", certificates.token_key())
    flags: dict[str, Any] = {
        "etcd-servers": store,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "tls-cert-file": certificates.write(folder / "api.crt", certificate),
        "tls-private-key-file": certificates.write(folder / "api.key", key),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": token_key,
        "service-account-signing-key-file": token_key,
        "token-auth-file": certificates.write(folder / "tokens.csv", tokens.encode()),
        "authorization-mode": "RBAC",
        "service-cluster-ip-range": "10.99.0.0/24",
    }
    etcd: list[str | Path] = [PROGRAMS["etcd"], "--data-dir", folder / "etcd", "--log-level", "warn", "--unsafe-no-fsync"]
    etcd += ["--listen-client-urls", store, "--advertise-client-urls", store, "--listen-peer-urls", peers]
    etcd += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    servers = [
        Server("etcd", etcd, folder / "etcd.log"),
        Server("kube-apiserver", [PROGRAMS["kube-apiserver"], *(f"--{n}={v}" for n, v in flags.items())], folder / "api.log"),
    ]
    context = ssl.create_default_context(cadata=authority.pem.decode())
    headers = {"Authorization": f"Bearer {token}"}
    url = f"https://127.0.0.1:{port}"
    config = kubeconfig.write(folder / "kubeconfig", url, authority.pem, token)
    users = kubeconfig.write(folder / "limited", url, authority.pem, limited)
    try:
        for server in servers:
            await server.start()
        async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as session:
            api = ApiServer(url, config, users, session, servers[1])
            await api.until("/api/v1/namespaces/kube-system")  # made once it is ready
            await install_crds(api)
            yield api
    finally:
        for server in reversed(servers):
            await server.stop()


async def install_crds(api: ApiServer) -> None:
    files = [*sorted((CRDS / "gateway-api" / "experimental").glob("*.yaml")), *sorted((CRDS / "lasthop").glob("*.yaml"))]
    found = [document for file in files for document in yaml.safe_load_all(file.read_text()) if document]
    crds = [document for document in found if document["kind"] == "CustomResourceDefinition"]
    await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", *crds)
    for crd in crds:
        spec = crd["spec"]
        served = next(version["name"] for version in spec["versions"] if version["served"])
        await api.until(f"/apis/{spec['group']}/{served}/{spec['names']['plural']}")
