"""Tests an installation for two namespaces, with a Role in each and no other permissions: `python -m conformance install`.

A Gateway in one of them serves traffic and one elsewhere is left alone. Meanwhile the API server writes down every request of
the controller: none may be refused, and every right that it was given must have been used, or be explained in `UNUSED`.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from conformance.api import Object
from conformance.checks import eventually, failed, mk_object
from conformance.children import say
from conformance.cluster import Cluster, has_condition
from conformance.lasthop import CONTROLLER, GATEWAY_CLASS, NAMESPACE
from lasthop.run.infra.kubernetes.installation import Options, documents
from lasthop.run.infra.kubernetes.verification_memory import CONFIG_MAP

WATCHED = ("shop", "blog")
ELSEWHERE = "elsewhere"
GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/{}/gateways/{}"
FLAGS = (
    f"--audit-policy-file={Path(__file__).with_name('audit-policy.yaml')}",
    "--audit-log-path=-",
    "--audit-log-mode=blocking",
)
"""Into the API server's own log, line by line."""

Right = tuple[str, str, str]
"""(group, resource or resource/subresource, verb)"""

GATEWAY_API, EXPERIMENTAL = "gateway.networking.k8s.io", "gateway.networking.x-k8s.io"


def unused(right: Right) -> str:
    """Why a right was given that the log shows no use of; empty: it should not have been."""
    group, resource, verb = right
    if verb == "list":
        return "for servers that know no streaming list, or cannot give one while they start"
    if group == "certificates.k8s.io":
        return "this cluster does not serve ClusterTrustBundles"
    if group == "multicluster.x-k8s.io":
        return "this cluster does not serve ServiceImports"
    if group in (GATEWAY_API, EXPERIMENTAL) and verb == "get":
        return "reads an object again if another controller has written its status at the same time"
    if resource.endswith("/status"):
        return "the scenario has no object of this kind"
    return UNUSED.get(right, "")


CREATED = (
    ("", "services"),
    ("", "serviceaccounts"),
    ("apps", "deployments"),
    ("policy", "poddisruptionbudgets"),
    ("autoscaling", "horizontalpodautoscalers"),
)
UNUSED: dict[Right, str] = {
    ("", "secrets", "update"): "replaces the CA of the xDS connections every few months",
    ("", "configmaps", "update"): "writes down anew how backends are verified, when that changes",
    ("events.k8s.io", "events", "patch"): "counts an Event that happens again",
    **{(*what, "create"): "an apply that makes something new needs it too (checked above)" for what in CREATED},
}


async def check_rights(cluster: Cluster, arguments: dict[str, Any]) -> int:
    manifests = documents(Options("lasthop", NAMESPACE, 1, WATCHED))
    crds = [manifest for manifest in manifests if manifest["kind"] == "CustomResourceDefinition"]
    await cluster.apply([*(mk_object("v1", "Namespace", "", name) for name in (*WATCHED, ELSEWHERE)), *crds])
    await asyncio.sleep(1)  # until the new kinds are served
    await cluster.apply(manifest for manifest in manifests if manifest not in crds)
    await cluster.deployment_ready(NAMESPACE, CONTROLLER)
    await cluster.apply(obj for namespace in ("shop", ELSEWHERE) for obj in _gateway(namespace))
    granted = set(_granted(manifests))
    checks = (serves, left_alone, recorded, nothing_told, changed_in_place, taken_away, nothing_refused, create_is_needed)
    bad = await failed(cluster, checks)
    used = {right for right, code in requests(cluster) if code != 403}
    idle: dict[str, list[Right]] = {}
    for right in sorted(granted - used):
        idle.setdefault(unused(right), []).append(right)
    for reason, rights in idle.items():
        bad += not reason
        names = ", ".join(f"{verb} {resource}" for _, resource, verb in rights)
        say(f"{'unused ' if reason else 'FAILED '} {reason or 'granted but unused; remove it'}: {names}")
    say(f"{len(granted & used)} of {len(granted)} rights were used")
    return 1 if bad else 0


async def serves(cluster: Cluster) -> None:
    """A Gateway in a watched namespace is programmed, and requests reach the backend by its Service and by its Pods."""
    await eventually(lambda: _programmed(cluster, "shop", "web"), 60)
    address = (await cluster.api.get(GATEWAYS.format("shop", "web")))["status"]["addresses"][0]["value"]

    async def answered(path: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=2)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                async with session.get(f"http://{address}{path}") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

    for path in ("/", "/pods"):
        await eventually(functools.partial(answered, path), 30)


async def left_alone(cluster: Cluster) -> None:
    """A Gateway in another namespace gets no status, no Deployment and no Service."""
    gateway = await cluster.api.get(GATEWAYS.format(ELSEWHERE, "web"))
    assert not has_condition(gateway, "Accepted"), gateway["status"]
    assert not (await cluster.api.get(f"/apis/apps/v1/namespaces/{ELSEWHERE}/deployments"))["items"][1:], "a Deployment"
    names = [
        service["metadata"]["name"] for service in (await cluster.api.get(f"/api/v1/namespaces/{ELSEWHERE}/services"))["items"]
    ]
    assert names == ["echo"], names


async def recorded(cluster: Cluster) -> None:
    """A ConfigMap in the controller's namespace stores the verification of backends."""

    async def there() -> bool:
        config_maps = await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps")
        return any(item["metadata"]["name"] == CONFIG_MAP for item in config_maps["items"])

    await eventually(there, 30)


async def changed_in_place(cluster: Cluster) -> None:
    """A label of the Gateway's infrastructure reaches everything that was made for it."""
    path = GATEWAYS.format("shop", "web")
    await cluster.api.patch(path, {"spec": {"infrastructure": {"labels": {"team": "shop"}}}})

    async def labelled() -> bool:
        kinds = ("/apis/apps/v1/namespaces/shop/deployments", "/api/v1/namespaces/shop/services")
        lists = [await cluster.api.get(kind, labelSelector="team=shop") for kind in kinds]
        return all(listed["items"] for listed in lists)

    await eventually(labelled, 30)
    await eventually(lambda: _programmed(cluster, "shop", "web"), 30)


async def taken_away(cluster: Cluster) -> None:
    """A Gateway that moves to another class loses its proxies."""
    await cluster.api.patch(GATEWAYS.format("shop", "web"), {"spec": {"gatewayClassName": "another"}})

    async def gone() -> bool:
        selector = "app.kubernetes.io/managed-by=lasthop"
        paths = ("/apis/apps/v1/namespaces/shop/deployments", "/api/v1/namespaces/shop/secrets")
        return not any([(await cluster.api.get(path, labelSelector=selector))["items"] for path in paths])

    await eventually(gone, 40)


async def nothing_told(cluster: Cluster) -> None:
    """The controller's admin address shows others in the cluster its health, and nothing about the objects."""
    (pod,) = (await cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
    address = f"http://{pod['status']['podIP']}:19000"
    expected = {"/readyz": 200, "/metrics": 200, "/api/objects": 421, "/": 421}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
        for path, status in expected.items():
            async with session.get(address + path, headers={"Host": "localhost"}) as response:
                assert response.status == status, (path, response.status)


async def nothing_refused(cluster: Cluster) -> None:
    """The API server has refused the controller nothing."""
    refused = {right for right, code in requests(cluster) if code == 403}
    assert not refused, sorted(refused)


async def create_is_needed(cluster: Cluster) -> None:
    """Without `create`, which the log does not show because it is part of an apply, nothing new is made."""
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles/lasthop-gateways"
    rules = (await cluster.api.get(path))["rules"]
    for rule in rules:
        if rule["resources"] == ["poddisruptionbudgets"]:
            rule["verbs"].remove("create")
    await cluster.api.patch(path, {"rules": rules})
    await cluster.api.patch(GATEWAYS.format("shop", "web"), {"spec": {"gatewayClassName": GATEWAY_CLASS}})
    wanted = (("policy", "poddisruptionbudgets", "patch"), 403)

    async def refused() -> bool:
        return wanted in requests(cluster)

    await eventually(refused, 30)


def requests(cluster: Cluster) -> Iterator[tuple[Right, int]]:
    """The controller's requests to the API server, with their status."""
    for line in (cluster.logs / "kube-apiserver.log").read_text(errors="replace").splitlines():
        if line.startswith('{"kind":"Event"'):
            event = json.loads(line)
            what = event.get("objectRef")
            if what and what.get("resource"):
                resource = "/".join(part for part in (what["resource"], what.get("subresource")) if part)
                yield (what.get("apiGroup", ""), resource, event["verb"]), event.get("responseStatus", {}).get("code", 0)


def _granted(manifests: list[Object]) -> Iterator[Right]:
    """To the controller; there are also roles for people, which are not bound yet."""
    bound = {
        manifest["roleRef"]["name"] for manifest in manifests if manifest["kind"] in ("RoleBinding", "ClusterRoleBinding")
    }
    for role in manifests:
        if role["kind"] in ("Role", "ClusterRole") and role["metadata"]["name"] in bound:
            for rule in role["rules"]:
                yield from (
                    (group, resource, verb)
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                )


async def _programmed(cluster: Cluster, namespace: str, name: str) -> bool:
    gateway = await cluster.api.get(GATEWAYS.format(namespace, name))
    return has_condition(gateway, "Programmed")


def _gateway(namespace: str) -> list[Object]:
    """A Gateway, a route to echo-basic, by its Service and by its Pods, and a policy that cannot be fulfilled on a port of its
    own."""
    api = "gateway.networking.k8s.io/v1"
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    pod = {"containers": [{"name": "echo", "image": "echo-basic", "env": env}]}
    template = {"metadata": {"labels": {"app": "echo"}}, "spec": pod}
    ports = [{"name": name, "port": port, "targetPort": 3000} for name, port in (("http", 80), ("https", 443))]
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    tolerations = [{"key": "edge", "operator": "Exists"}]
    scaled = {"proxy": {"autoscaling": {"maxReplicas": 2}, "pod": {"tolerations": tolerations}}}
    infrastructure = {"parametersRef": {"group": "lasthop.dev", "kind": "GatewayProfile", "name": "scaled"}}
    rules = [
        {"matches": [{"path": {"value": "/tls"}}], "backendRefs": [{"name": "echo", "port": 443}]},
        {
            "matches": [{"path": {"value": "/pods"}}],
            "backendRefs": [{"group": EXPERIMENTAL, "kind": "XBackend", "name": "pods"}],
        },
        {"backendRefs": [{"name": "echo", "port": 80}]},
    ]
    pods = {"type": "EndpointSelector", "port": {"number": 3000}, "endpointSelector": {"matchLabels": {"app": "echo"}}}
    target = {"group": "", "kind": "Service", "name": "echo", "sectionName": "https"}
    trust = {"hostname": "echo.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "nowhere"}]}
    return [
        mk_object(
            "apps/v1",
            "Deployment",
            namespace,
            "echo",
            spec={"selector": {"matchLabels": {"app": "echo"}}, "template": template},
        ),
        mk_object("v1", "Service", namespace, "echo", spec={"selector": {"app": "echo"}, "ports": ports}),
        mk_object("lasthop.dev/v1alpha1", "GatewayProfile", namespace, "scaled", spec=scaled),
        mk_object(
            api,
            "Gateway",
            namespace,
            "web",
            spec={"gatewayClassName": GATEWAY_CLASS, "listeners": [listener], "infrastructure": infrastructure},
        ),
        mk_object(api, "HTTPRoute", namespace, "echo", spec={"parentRefs": [{"name": "web"}], "rules": rules}),
        mk_object(f"{EXPERIMENTAL}/v1alpha1", "XBackend", namespace, "pods", spec=pods),
        mk_object(api, "BackendTLSPolicy", namespace, "echo", spec={"targetRefs": [target], "validation": trust}),
    ]
