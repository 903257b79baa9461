"""A controller on a real API server: no port is plaintext while a policy may name it that could not be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.edge.kubernetes.client import Client, path_of
from lasthop.edge.kubernetes.config import load
from lasthop.edge.sources.kubernetes.source import KubernetesSource
from lasthop.run import loop
from tests.api_objects import mk_policy, mk_route
from tests.apiserver.server import PATIENCE, ApiServer, api_server
from tests.fake_api import until
from tests.proxy import documents as docs
from tests.unit.proving import POLICIES, Site
from tests.xds_envoy import short_directory

pytestmark = pytest.mark.timeout(400)
GROUP: Final = "gateway.networking.k8s.io"
CRD: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{POLICIES}.{GROUP}"
ROLE: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


async def create(api: ApiServer, kind: str, document: Json) -> None:
    known = KINDS[kind]
    namespace = document["metadata"].get("namespace", "")
    body = {**document, "apiVersion": known.api_versions[0], "kind": kind}
    await api.create(path_of(known.group, known.versions[0], known.plural, namespace), body)


async def create_hop(api: ApiServer, name: str) -> None:
    metadata = {"name": name, "namespace": "shop"}
    await create(api, "Service", {"metadata": metadata, "spec": {"ports": [{"name": "web", "port": 80}]}})
    rules = [{"backendRefs": [{"name": name, "port": 80}]}]
    await create(api, "HTTPRoute", mk_route(name, hostnames=[f"{name}.example"], rules=rules))


async def create_shop(api: ApiServer) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
    await create(api, "GatewayClass", docs.gateway_class())
    spec = {"gatewayClassName": docs.CLASS, "listeners": [docs.http(80)]}
    await create(api, "Gateway", docs.obj(docs.GATEWAY_API, "Gateway", "shop/gw", spec=spec))
    await create_hop(api, "plain")
    await create(api, "BackendTLSPolicy", mk_policy("safe", "safe"))
    await create_hop(api, "safe")


def rules(*, policies: bool) -> Json:
    kinds = [kind for kind in KINDS.values() if policies or kind.plural != POLICIES]
    allowed = [{"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["get", "list", "watch"]} for kind in kinds]
    crds = {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]}
    return {"metadata": {"name": "reader"}, "rules": [*allowed, crds]}


async def allow_reading(api: ApiServer) -> None:
    await api.create(ROLE, rules(policies=True))
    subject = {"kind": "User", "name": "lasthop", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "reader"}, "subjects": [subject], "roleRef": role}
    await api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)


@asynccontextmanager
async def controlling(api: ApiServer) -> AsyncIterator[Site]:
    async with Client(load(str(api.limited), None)) as client, asyncio.TaskGroup() as tasks:
        site = Site(KubernetesSource(client))
        running = tasks.create_task(loop.run(site.controller))
        await until(site.controller.loaded.is_set, PATIENCE)
        await site.becomes("plain", "plaintext")
        await site.becomes("safe", "tls")
        yield site
        running.cancel()


async def test_only_proven_absence_of_policies_leads_to_plaintext() -> None:
    with short_directory() as folder:
        async with api_server(folder) as api:
            await create_shop(api)
            await allow_reading(api)
            async with controlling(api) as site:
                await create_hop(api, "new")
                await site.becomes("new", "plaintext")
                await the_right_is_taken_away(api, site)
                await the_api_server_comes_back(api, site)
                await the_crd_serves_only_another_version(api, site)
                await the_crd_is_replaced(api, site)


async def the_right_is_taken_away(api: ApiServer, site: Site) -> None:
    """C1."""
    assert (await api.ask("PUT", f"{ROLE}/reader", rules(policies=False)))[0] == 200
    probe = 0
    async with asyncio.timeout(PATIENCE):
        while "403" not in site.message(f"c1-{probe}"):  # the API server takes up a role after a moment
            probe += 1
            await create_hop(api, f"c1-{probe}")
            await asyncio.sleep(2.0)
    assert (site.mode("plain"), site.mode("safe")) == ("plaintext", "tls")
    assert "plaintext" not in site.history[f"c1-{probe}"]
    assert (await api.ask("PUT", f"{ROLE}/reader", rules(policies=True)))[0] == 200
    await until(lambda: site.mode(f"c1-{probe}") == "plaintext", PATIENCE)


async def the_api_server_comes_back(api: ApiServer, site: Site) -> None:
    """C3: each kind opens its watch again in its own time."""
    for turn in range(2):
        await api.restart()
        names = [f"c3-{turn}-{number}" for number in range(5)]
        for name in names:
            await create(api, "BackendTLSPolicy", mk_policy(name, name))
            await create_hop(api, name)
        await until(lambda names=names: all(site.mode(name) == "tls" for name in names), PATIENCE)
        assert not [name for name in names if "plaintext" in site.history[name]]


async def the_crd_serves_only_another_version(api: ApiServer, site: Site) -> None:
    """C2."""
    _, crd, _ = await api.ask("GET", CRD)
    original = crd["spec"]["versions"]
    old = {**original[0], "name": "v1alpha2", "served": True, "storage": False}
    crd["spec"]["versions"] = [*({**each, "served": False} for each in original), old]
    assert (await api.ask("PUT", CRD, crd))[0] == 200
    await create_hop(api, "c2")
    await until(lambda: "serves only v1alpha2" in site.message("c2"), PATIENCE)
    await until(lambda: any(each.reason == "NotServed" for each in site.controller.source_findings), PATIENCE)
    assert (site.mode("plain"), site.mode("safe")) == ("plaintext", "tls") and "plaintext" not in site.history["c2"]
    _, crd, _ = await api.ask("GET", CRD)
    crd["spec"]["versions"] = original
    assert (await api.ask("PUT", CRD, crd))[0] == 200
    await until(lambda: site.mode("c2") == "plaintext", PATIENCE)
    assert site.history["safe"] == ["verified"]


async def the_crd_is_replaced(api: ApiServer, site: Site) -> None:
    """H3: closed while it is being deleted, plaintext by the documented rule, verified once the policies exist again."""
    _, crd, _ = await api.ask("GET", CRD)
    assert (await api.ask("DELETE", CRD))[0] == 200
    await until(lambda: site.mode("safe") == "plaintext", PATIENCE)
    assert site.history["safe"] == ["verified", "failing closed", "plaintext"]
    metadata = {"name": crd["metadata"]["name"], "annotations": crd["metadata"]["annotations"]}
    await api.create(CRD.rpartition("/")[0], {**crd, "metadata": metadata, "status": None})
    await api.until(f"/apis/{GROUP}/v1/{POLICIES}")
    await create(api, "BackendTLSPolicy", mk_policy("h3", "h3"))
    await create(api, "BackendTLSPolicy", mk_policy("safe", "safe"))
    await create_hop(api, "h3")
    await until(lambda: (site.mode("h3"), site.mode("safe")) == ("tls", "tls"), PATIENCE)
    assert "plaintext" not in site.history["h3"]
