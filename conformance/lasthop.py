"""Installs Lasthop on the cluster. Only `install` does so."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from conformance.api import Object, documents
from conformance.cluster import REPOSITORY, Cluster
from conformance.network import NODE_IP

GATEWAY_CLASS = "lasthop"
CONTROLLER_NAME = "lasthop.dev/gateway-controller"
NAMESPACE = "lasthop-system"
MANIFESTS = REPOSITORY / "deploy" / "lasthop.yaml"
CONTROLLER = "lasthop-controller"  # the Deployment and its ServiceAccount
WAYS = ("deployment", "process", "none")

_CLASS = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}"


async def install(cluster: Cluster, way: str) -> None:
    """Three ways:

    deployment  as users install it: the manifests, the controller a pod under its own ServiceAccount
    process     `lasthop controller` as a process of the cluster's network, with the rights of that same ServiceAccount
    none        nothing: the GatewayClass is accepted by hand, so that the cluster itself can be tried with the suite
    """
    await cluster.apply([gateway_class()])
    match way:
        case "deployment":
            await cluster.apply(documents(MANIFESTS))
            await cluster.deployment_ready(NAMESPACE, CONTROLLER)
        case "process":
            await cluster.apply(document for document in documents(MANIFESTS) if document["kind"] != "Deployment")
            kubeconfig = await cluster.service_account_kubeconfig(NAMESPACE, CONTROLLER)
            flags = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", f"--xds-address={NODE_IP}:18000"]
            await cluster.start(CONTROLLER, [program(), "controller", *flags])
        case "none":
            await _accept_by_hand(cluster)


def program() -> Path:
    """The command of the environment that runs this."""
    return Path(sys.executable).parent / "lasthop"


def gateway_class() -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": GATEWAY_CLASS},
        "spec": {"controllerName": CONTROLLER_NAME},
    }


async def accepted(cluster: Cluster, seconds: float = 60) -> bool:
    """Whether the controller has accepted the class within this time; if not, the suite cannot work."""
    for _ in range(int(seconds / 0.1)):
        conditions = (await cluster.api.get(_CLASS)).get("status", {}).get("conditions") or ()
        if any(condition["type"] == "Accepted" and condition["status"] == "True" for condition in conditions):
            return True
        await asyncio.sleep(0.1)
    return False


async def supported_features(cluster: Cluster) -> list[str]:
    """The features that the GatewayClass claims, which the suite tests."""
    document = await cluster.api.get(_CLASS)
    return [feature["name"] for feature in document.get("status", {}).get("supportedFeatures") or ()]


async def _accept_by_hand(cluster: Cluster) -> None:
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "by hand",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    features = [{"name": name} for name in ("Gateway", "HTTPRoute", "ReferenceGrant")]
    await cluster.api.patch(f"{_CLASS}/status", {"status": {"conditions": [condition], "supportedFeatures": features}})
