"""`lasthop doctor` on a real API server: its report of permissions matches the server's."""

from __future__ import annotations

import asyncio
import json

import pytest

from lasthop.run.infra.kubernetes.installation import Options, documents, path
from tests.apiserver.server import PATIENCE, ApiServer, api_server
from tests.folders import lasthop
from tests.xds_envoy import short_directory

pytestmark = pytest.mark.timeout(300)


async def checks(api: ApiServer) -> dict[str, dict[str, str]]:
    found = await asyncio.to_thread(lasthop, "doctor", "--kubeconfig", api.kubeconfig, "-o", "json")
    return {each["what"]: each for each in json.loads(found.stdout)}


async def test_doctor_says_of_a_cluster_what_is_true() -> None:
    with short_directory() as folder:
        async with api_server(folder) as api:
            await the_controller_lacks_a_right(api)


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
