"""`lasthop controller --infrastructure=process`: a cluster's objects, an Envoy of this host, statuses written back."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from lasthop.edge.proxy.binary import find_envoy
from lasthop.run.cluster_host import ClusterHostRuntime
from lasthop.web.controller_view import ControllerView
from lasthop.web.metrics import metrics
from tests.api_objects import mk_pod, mk_selector
from tests.backends import Backend
from tests.fake_api import KINDS, FakeApi, client_of, serving, until
from tests.ports import free_port
from tests.proxy import certs
from tests.proxy import documents as docs

PLURALS = {kind: plural for plural, kind in KINDS.items()}


def put(api: FakeApi, *documents: dict[str, Any]) -> None:
    for document in documents:
        api.put(PLURALS[document["kind"]], document)


def programmed(api: FakeApi) -> str:
    conditions = (api.get("gateways", "web", "shop").get("status") or {}).get("conditions") or ()
    return next((c["status"] for c in conditions if c["type"] == "Programmed"), "")


@contextlib.asynccontextmanager
async def running(api: FakeApi) -> AsyncIterator[ClusterHostRuntime]:
    # Short, because unix sockets are in it.
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as folder:
        async with client_of(api) as client, asyncio.TaskGroup() as tasks:
            run_dir = Path(folder)
            runtime = ClusterHostRuntime(client, find_envoy(), run_dir, identity="me", namespace="system", address="127.0.0.1")
            task = tasks.create_task(runtime.run())
            yield runtime
            runtime.stop()
            runtime.stop()
            await task


async def ask(port: int) -> int:
    url, headers = f"http://127.0.0.1:{port}/", {"host": "api.test"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as response:
        return response.status


async def test_a_selector_of_an_xbackend_leads_to_pods_that_are_ready() -> None:
    port = free_port()
    with contextlib.closing(Backend(certs.issued())) as backend:
        async with serving(FakeApi()) as api:
            api.served |= {("", "v1", "pods"), ("gateway.networking.x-k8s.io", "v1alpha1", "xbackends")}
            selector = mk_selector("api", port=backend.port, app="x")
            validation = {"hostname": certs.HOSTNAME, "caCertificateRefs": [docs.ref("ca")]}
            selector["spec"]["tls"] = {"mode": "ServerOnly", "validation": validation}
            api.put("xbackends", selector)
            api.put("pods", mk_pod("one", "127.0.0.1"))
            put(api, docs.gateway_class(), docs.namespace("shop"), docs.gateway("web", docs.http(port)))
            put(api, docs.route("api", docs.to_xbackend("api")), docs.config_map("ca", certs.CA.pem))
            async with running(api):
                await until(lambda: programmed(api) == "True")
                assert await ask(port) == 200
                assert not backend.saw_plaintext
                for ready, status in ((False, 503), (True, 200)):
                    api.put("pods", mk_pod("one", "127.0.0.1", ready=ready))
                    async with asyncio.timeout(30):
                        while await ask(port) != status:  # noqa: ASYNC110
                            await asyncio.sleep(0.05)


async def test_a_gateway_of_a_cluster_runs_on_this_host_and_its_status_reports_it() -> None:
    port = free_port()
    with contextlib.closing(Backend(certs.issued())) as backend:
        async with serving(FakeApi()) as api:
            put(
                api,
                docs.gateway_class(),
                docs.namespace("shop"),
                docs.gateway("web", docs.http(port)),
                docs.service("api"),
                *docs.endpoints("api", backend.port),
                docs.route("api", docs.to("api")),
                docs.policy("api", certs.HOSTNAME, "ca"),
                docs.config_map("ca", certs.CA.pem),
            )
            async with running(api) as runtime:
                await until(lambda: programmed(api) == "True")
                assert api.get("gateways", "web", "shop")["status"]["addresses"] == [
                    {"type": "IPAddress", "value": "127.0.0.1"}
                ]
                assert await ask(port) == 200
                assert not backend.saw_plaintext
                assert api.get("leases", "lasthop", "system")["spec"]["holderIdentity"] == "me"
                text = (await metrics(ControllerView(runtime))).decode()
                names = ("lasthop_leader", "lasthop_status_writes_total", "lasthop_xds_clients")
                assert all(f"# TYPE {name} " in text for name in names)

                put(api, docs.config_map("ca", certs.OTHER_CA.pem))
                async with asyncio.timeout(10):
                    while await ask(port) != 503:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
    assert api.get("leases", "lasthop", "system")["spec"]["holderIdentity"] == ""
