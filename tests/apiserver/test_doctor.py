"""`lasthop doctor` of a real API server: what it says of webhooks and rights is what that server does."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from lasthop.run.infra.kubernetes.installation import Options, documents, path
from tests.apiserver.server import PATIENCE, ApiServer, api_server
from tests.certificates import Certificate, dns
from tests.folders import lasthop
from tests.ports import free_port
from tests.xds_envoy import short_directory

pytestmark = pytest.mark.timeout(300)
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
RULE = {"apiGroups": ["gateway.networking.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}


async def checks(api: ApiServer) -> dict[str, dict[str, str]]:
    found = await asyncio.to_thread(lasthop, "doctor", "--kubeconfig", api.kubeconfig, "-o", "json")
    return {each["what"]: each for each in json.loads(found.stdout)}


def webhook(config: dict[str, Any]) -> dict[str, Any]:
    hook = {"name": "a.example.com", "failurePolicy": "Fail", "rules": [RULE], "clientConfig": config, "timeoutSeconds": 2}
    hook |= {"sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {"metadata": {"name": "strict"}, "webhooks": [hook]}


async def test_doctor_says_of_a_cluster_what_is_true() -> None:
    with short_directory() as folder:
        async with api_server(folder) as api:
            await the_controller_lacks_a_right(api)
            await a_webhook_has_the_wrong_ca(api)


async def the_controller_lacks_a_right(api: ApiServer) -> None:
    for document in documents(Options("lasthop", replicas=1)):
        if document["kind"] != "CustomResourceDefinition":
            where = path(document)
            status, answer, _ = await api.ask("POST", where.rpartition("/")[0], document)
            assert status == 201, answer
    found = await checks(api)
    assert found["rights of the controller"]["verdict"] == "ok"
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/lasthop-gateways"
    _, present, _ = await api.ask("GET", role)
    for rule in present["rules"]:
        rule["resources"] = [each for each in rule["resources"] if each != "backendtlspolicies/status"]
    assert (await api.ask("PUT", role, present))[0] == 200
    async with asyncio.timeout(PATIENCE):
        while "may not update backendtlspolicies/status" not in found["rights of the controller"]["found"]:
            await asyncio.sleep(0.2)
            found = await checks(api)


async def a_webhook_has_the_wrong_ca(api: ApiServer) -> None:
    authority, other, port = Certificate("CA", ca=True), Certificate("other", ca=True), free_port()
    server = Certificate("localhost", authority, sans=dns("localhost"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port, ssl=server.server_context()):
        config = {"url": f"https://localhost:{port}/", "caBundle": base64.b64encode(other.pem.encode()).decode()}
        await api.create(WEBHOOKS, webhook(config))
        async with asyncio.timeout(PATIENCE):
            found = (await checks(api))["webhook strict"]
            while found["verdict"] != "failed":
                await asyncio.sleep(0.2)
                found = (await checks(api))["webhook strict"]
    assert "certificate signed by unknown authority" in found["found"]
    _, routes, _ = await api.ask("GET", "/apis/gateway.networking.k8s.io/v1/httproutes")
    assert routes["items"] == []
