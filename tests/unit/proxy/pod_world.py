"""A controller that serves xDS over mutual TLS, a Secret as the kubelet mounts it, and `lasthop proxy` as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from cryptography import x509

import lasthop
from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import Authority
from lasthop.edge.proxy.admin import Admin, AdminUnavailable, request
from lasthop.edge.xds.credentials import MutualTls
from lasthop.edge.xds.server import XdsServer
from lasthop.engine.outputs.envoy.xds_cluster import XDS_CLUSTER
from tests.ports import free_port
from tests.xds_envoy import GATEWAY, Heard, becomes, changes, cluster, get, listener, route_table, until, virtual_host

UID = "6a7e1d0c"
NAME = "lasthop-xds.lasthop-system.svc"


class MountedSecret:
    """Files behind `..data`, which is swapped whole: the way every kubelet does it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._version = 0

    def write(self, data: Mapping[str, bytes]) -> None:
        self._version += 1
        version = self.path / f"..{self._version}"
        version.mkdir()
        for name, content in data.items():
            (version / name).write_bytes(content)
            (version / name).chmod(0o644)
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        (self.path / "..new").symlink_to(version.name)
        (self.path / "..new").rename(self.path / "..data")


class Controller:
    def __init__(self) -> None:
        self.authority = ca.renewed(None, time.time())
        self.heard = Heard()
        self.port = free_port()
        self.http = free_port()
        self.uids = {UID: GATEWAY}
        self.use(self.authority)
        self.server = XdsServer(self.heard)

    def use(self, authority: Authority) -> None:
        self.authority = authority
        self.credentials = MutualTls(ca.server_pair(authority, (NAME,), time.time()), authority.bundle)

    def secret(self, uid: str = UID, authority: Authority | None = None) -> dict[str, bytes]:
        return ca.client_secret(authority or self.authority, uid, time.time())

    def serve(self, backend: int) -> None:
        table = route_table("http", virtual_host("*", {"/": "a"}))
        self.server.update(GATEWAY, changes(*cluster("a", backend), listener("http", self.http, "http"), table))

    async def start(self) -> None:
        await self.server.start_tls(f"127.0.0.1:{self.port}", lambda: self.credentials, self.uids.get)
        self.server.open()

    async def restart(self) -> None:
        old, self.server = self.server, XdsServer(self.heard)
        await old.close()

    def synced(self) -> bool:
        return self.server.state(GATEWAY).synced


class ProxyProcess:
    def __init__(self, process: asyncio.subprocess.Process, ready_port: int, run: Path) -> None:
        self._process = process
        self.ready_port = ready_port
        self._run = run

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> tuple[int, str]:
        return await get(self.ready_port, "/ready")

    async def xds_stat(self, stat: str) -> int:
        """A counter of Envoy's connection to the controller, e.g. `ssl.fail_verify_san`."""
        name = f"cluster.{XDS_CLUSTER}.{stat}"
        for socket in self._run.rglob("admin.sock"):
            with contextlib.suppress(AdminUnavailable):
                return (await Admin(socket).stats(f"^{name}$")).get(name, 0)
        return 0

    async def takes_up(self, secret: MountedSecret, data: Mapping[str, bytes]) -> None:
        """Writes the Secret, and waits until Envoy has its certificate and its CAs, as its admin interface shows them."""
        secret.write(data)
        pems = x509.load_pem_x509_certificates(data["tls.crt"])[:1] + x509.load_pem_x509_certificates(data["ca.crt"])
        (socket,) = self._run.rglob("admin.sock")

        async def shown() -> bool:
            _, body = await request(socket, "GET", "/certs")
            return all(f"{pem.serial_number:x}" in body.decode() for pem in pems)

        await becomes(True, shown)

    async def tried(self, stat: str, times: int = 2) -> None:
        """Waits until Envoy has counted that so often: before that, "nothing came" would prove nothing."""

        async def counted() -> bool:
            return await self.xds_stat(stat) >= times

        await becomes(True, counted)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, limit: float = 10) -> int:
        async with asyncio.timeout(limit):
            return await self._process.wait()

    def envoy(self) -> int:
        """Its child's pid."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])


@contextlib.asynccontextmanager
async def lasthop_proxy(
    folder: Path, controller: Controller, secret: MountedSecret, *, drain: float = 3, wrapper: tuple[str, ...] = ()
) -> AsyncIterator[ProxyProcess]:
    """Its standard output is in `folder/out`, its standard error in `folder/err`."""
    run, ready = folder / "run", free_port()
    run.mkdir(exist_ok=True)
    run.chmod(0o777)  # as an emptyDir is
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(lasthop.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LASTHOP_GATEWAY": GATEWAY.path,
        "LASTHOP_XDS_ADDRESS": f"127.0.0.1:{controller.port}",
        "LASTHOP_XDS_SERVER_NAME": NAME,
        "LASTHOP_XDS_CERTIFICATES": str(secret.path),
        "LASTHOP_RUN_DIR": str(run),
        "LASTHOP_READY_PORT": str(ready),
        "LASTHOP_DRAIN_SECONDS": str(drain),
    }
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            *wrapper, sys.executable, "-m", "lasthop.cli.main", "proxy", env=env, stdout=out, stderr=err, cwd="/"
        )
    try:
        yield ProxyProcess(process, ready, run)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def said(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "err").read_text().splitlines() if line.startswith("{")]


__all__ = ["Controller", "MountedSecret", "ProxyProcess", "get", "lasthop_proxy", "said", "until"]
