"""Puts Lasthop on the cluster. `install` is the one place that knows how."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from conformance.api import Object, documents
from conformance.cluster import REPOSITORY, Cluster
from conformance.needs import Missing

GATEWAY_CLASS = "lasthop"
CONTROLLER_NAME = "lasthop.dev/gateway-controller"
NAMESPACE = "lasthop-system"
MANIFESTS = REPOSITORY / "deploy" / "lasthop.yaml"
WAYS = ("process", "deployment", "none")


async def install(cluster: Cluster, way: str) -> None:
    """Three ways:

    process     `lasthop controller` as a process of the cluster's network, as administrator
    deployment  as users install it: the manifests, the controller a pod under its own ServiceAccount
    none        nothing: the GatewayClass is accepted by hand, so that the cluster itself can be tried with the suite
    """
    await cluster.apply([gateway_class()])
    match way:
        case "process":
            command: list[str | Path] = [
                Path(sys.executable).parent / "lasthop",
                "controller",
                "--kubeconfig",
                cluster.kubeconfig,
                "--xds-address=10.244.0.1:18000",
                "--namespace=default",
            ]
            await cluster.start("lasthop-controller", command)
        case "deployment":
            if not MANIFESTS.exists():
                raise Missing(f"{MANIFESTS} does not exist")
            await cluster.apply(documents(MANIFESTS))
            await cluster.deployment_ready(NAMESPACE, "lasthop-controller")
        case "none":
            await _accept_by_hand(cluster)


def gateway_class() -> Object:
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": GATEWAY_CLASS},
        "spec": {"controllerName": CONTROLLER_NAME},
    }


async def accepted(cluster: Cluster, seconds: float = 60) -> bool:
    """Whether the controller has taken the class within this time: if not, there is no point in starting the suite."""
    path = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}"
    for _ in range(int(seconds / 0.1)):
        conditions = (await cluster.api.get(path)).get("status", {}).get("conditions") or ()
        if any(condition["type"] == "Accepted" and condition["status"] == "True" for condition in conditions):
            return True
        await asyncio.sleep(0.1)
    return False


async def _accept_by_hand(cluster: Cluster) -> None:
    path = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{GATEWAY_CLASS}"
    condition = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "by hand",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    features = [{"name": name} for name in ("Gateway", "HTTPRoute", "ReferenceGrant")]
    await cluster.api.patch(f"{path}/status", {"status": {"conditions": [condition], "supportedFeatures": features}})
