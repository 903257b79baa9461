"""`kubectl apply` against a real API server whose webhook is a real `lasthop controller`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.children import Server
from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS, document
from lasthop.run.infra.kubernetes.webhook import configuration
from tests.apiserver.server import PATIENCE, ApiServer, api_server
from tests.ports import free_port
from tests.rehearsed import REFUSING, world
from tests.world import key, mk_policy, mk_profile, profile_ref
from tests.xds_envoy import short_directory

pytestmark = pytest.mark.timeout(300)
NAMESPACE = "lasthop-system"
CHART = (Path(__file__).parents[2] / "deploy" / "webhook.yaml").read_text()


def written(obj: Any) -> Json:
    found = document(key(obj).kind, obj)
    return {**found, "metadata": {k: v for k, v in found["metadata"].items() if k not in ("generation", "creationTimestamp")}}


def path(kind: str, namespace: str = "shop") -> str:
    known = KINDS[kind]
    group = f"/apis/{known.group}/{known.versions[0]}" if known.group else f"/api/{known.versions[0]}"
    return f"{group}/namespaces/{namespace}/{known.plural}" if known.namespaced else f"{group}/{known.plural}"


def webhook(port: int) -> Json:
    """The chart's, by an address instead of a Service, which would need a node."""
    filled = CHART.replace("{{ .Release.Namespace }}", NAMESPACE).replace("{{ .Values.webhook.failurePolicy }}", "Ignore")
    found: Json = next(d for d in yaml.safe_load_all(filled) if d["kind"] == "ValidatingWebhookConfiguration")
    found["webhooks"][0]["clientConfig"] = {"url": f"https://localhost:{port}/validate"}
    return found


async def warned(api: ApiServer, method: str, path: str, body: Json | None = None) -> list[str]:
    """Asks until there is a warning: the API server takes up a webhook, and the controller the objects, within seconds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status, answer, warnings = await api.ask(method, path, body, dryRun="All")
            if status == 403 or [text for text in warnings if text.startswith("lasthop: ")]:
                return [answer.get("message", "")] if status == 403 else warnings
            await asyncio.sleep(0.2)


async def refused(api: ApiServer, method: str, path: str) -> str:
    """Tries until it is refused, and returns why; nothing is written."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status, answer, _ = await api.ask(method, path, dryRun="All")
            if status == 403:
                return str(answer["message"])
            await asyncio.sleep(0.2)


def controller(api: ApiServer, folder: Path, port: int) -> Server:
    xds = free_port()
    command: list[str | Path] = [Path(sys.executable).parent / "lasthop", "controller", "--kubeconfig", api.kubeconfig]
    command += ["--namespace", NAMESPACE, "--xds-address", f"localhost:{xds}", "--xds-listen", f"127.0.0.1:{xds}"]
    command += ["--admin", f"127.0.0.1:{free_port()}", "--webhook", f"127.0.0.1:{port}"]
    env = {**os.environ, "LASTHOP_RUN_DIR": str(folder / "r"), "LASTHOP_STATE_DIR": str(folder / "s")}
    return Server("lasthop", command, folder / "controller.log", env)


async def test_edits_give_warnings_and_are_refused_by_an_operators_rule() -> None:
    with short_directory() as folder:
        async with api_server(folder) as api:
            port = free_port()
            await api.create("/api/v1/namespaces", *({"metadata": {"name": name}} for name in ("shop", NAMESPACE)))
            for obj in world():
                if key(obj).kind not in ("Namespace", "EndpointSlice"):
                    await api.create(path(key(obj).kind), written(obj))
            await api.create(configuration(NAMESPACE).rpartition("/")[0], webhook(port))
            lasthop = controller(api, folder, port)
            await lasthop.start()
            try:
                await judged(api, lasthop)
            finally:
                await lasthop.kill()
                print(lasthop.log_tail(40))


async def judged(api: ApiServer, lasthop: Server) -> None:
    policies = path("BackendTLSPolicy")
    deleting = await warned(api, "DELETE", f"{policies}/api")
    assert deleting[0].startswith("lasthop: Gateway shop/web to Service shop/api:443 would be plaintext")
    younger = written(mk_policy("shop/second", "api", "other.example", ["no-ca"]))
    told = " ".join(await warned(api, "POST", policies, younger))
    assert "BackendTLSPolicy shop/second" in told
    _, current, _ = await api.ask("GET", f"{policies}/api")
    status, _, warnings = await api.ask("PUT", f"{policies}/api", current, dryRun="All")
    assert (status, warnings) == (200, []), "what is in order is written without a word"

    await api.create(path("GatewayProfile"), written(mk_profile("shop/rules", **REFUSING)))
    _, gateway, _ = await api.ask("GET", f"{path('Gateway')}/web")
    gateway["spec"]["infrastructure"] = {"parametersRef": profile_ref("rules")}
    status, answer, _ = await api.ask("PUT", f"{path('Gateway')}/web", gateway)
    assert status == 200, answer
    assert "would be plaintext" in await refused(api, "DELETE", f"{policies}/api")
    assert (await api.ask("DELETE", f"{policies}/api"))[0] == 403
    assert (await api.ask("GET", f"{policies}/api"))[0] == 200

    await lasthop.stop(30)
    assert (await api.ask("DELETE", f"{policies}/api"))[0] == 200, "without a controller the failurePolicy decides: Ignore"
