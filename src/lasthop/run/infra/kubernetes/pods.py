"""Builds the Deployment of a Gateway's proxies, and the objects that scale and guard it.

It does not depend on the listeners, because a new port must not restart every Pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.base.api.documents import Json
from lasthop.edge.proxy import pod_settings
from lasthop.edge.proxy.readiness import PATH
from lasthop.engine.plan.infrastructure import READY_PORT
from lasthop.run.infra.kubernetes.desired import DesiredGateway, Site
from lasthop.run.infra.kubernetes.names import object_name, selector

USER: Final = 65532
RUN_DIR: Final = "/run/lasthop"
RUN_SIZE: Final = "256Mi"
"""Protects the node's disk. The access log is truncated at 10 MiB, so this limit is for unexpected cases: a Pod that reaches
it is evicted."""
CERTIFICATES: Final = "/var/run/lasthop/xds"
SPARE_SECONDS: Final = 10
"""Seconds for Envoy to exit after the drain, before the kubelet kills it."""

# Kubernetes' "restricted" Pod security standard, and a read-only root file system.
CONTAINER_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}
POD_SECURITY: Final = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
    # Allows port 443 without root, because a capability would not reach a non-root process. It is one of the safe sysctls.
    "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
}


def deployment_spec(gateway: DesiredGateway, site: Site, labels: dict[str, str], annotations: dict[str, str]) -> Json:
    name, settings = gateway.key.name, gateway.settings
    spec: Json = {
        "selector": {"matchLabels": selector(name)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(gateway, site)},
    }
    if settings.replicas is None or settings.autoscaling:
        return spec
    return {"replicas": settings.replicas, **spec}


def budget_spec(gateway: DesiredGateway) -> Json:
    settings = gateway.settings.disruption_budget
    bounds = {"maxUnavailable": settings.max_unavailable, "minAvailable": settings.min_available}
    limits = {name: value for name, value in bounds.items() if value is not None}
    return {**limits, "selector": {"matchLabels": selector(gateway.key.name)}}


def autoscaler_specs(gateway: DesiredGateway) -> Iterator[Json]:
    """Yields one autoscaler, or none: without it, users scale the Deployment."""
    if (settings := gateway.settings.autoscaling) is not None:
        target = {"type": "Utilization", "averageUtilization": settings.target_cpu_utilization_percentage}
        yield {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": object_name(gateway.key.name)},
            "minReplicas": settings.min_replicas,
            "maxReplicas": settings.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }


def _pod(gateway: DesiredGateway, site: Site) -> Json:
    name = gateway.key.name
    return {
        **_scheduling(gateway),
        "serviceAccountName": object_name(name),
        # A proxy never connects to the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": gateway.settings.drain_seconds + SPARE_SECONDS,
        "securityContext": POD_SECURITY,
        "containers": [_container(gateway, site)],
        "volumes": [
            {"name": "run", "emptyDir": {"sizeLimit": RUN_SIZE}},
            {"name": "xds", "secret": {"secretName": object_name(name, "-xds")}},
        ],
    }


def _scheduling(gateway: DesiredGateway) -> Json:
    """Returns the profile's scheduling settings; by default Pods are spread over zones and nodes."""
    pod, mine = gateway.settings.pod, {"labelSelector": {"matchLabels": selector(gateway.key.name)}}
    spread = [
        {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", **mine}
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]
    if pod.topology_spread_constraints is not None:
        spread = [{**mine, **constraint.value} for constraint in pod.topology_spread_constraints]
    scheduling: Json = {
        "nodeSelector": dict(pod.node_selector),
        "tolerations": [toleration.value for toleration in pod.tolerations],
        "affinity": pod.affinity.value if pod.affinity else {},
        "topologySpreadConstraints": spread,
        "priorityClassName": pod.priority_class_name,
        "imagePullSecrets": [{"name": secret.name} for secret in pod.image_pull_secrets],
    }
    return {name: value for name, value in scheduling.items() if value}


def _container(gateway: DesiredGateway, site: Site) -> Json:
    settings = gateway.settings
    env = {
        pod_settings.GATEWAY: gateway.key.path,
        pod_settings.XDS_ADDRESS: site.xds_address,
        pod_settings.XDS_SERVER_NAME: site.xds_server_name or site.xds_host,
        pod_settings.CERTIFICATES: CERTIFICATES,
        pod_settings.RUN_DIR: RUN_DIR,
        pod_settings.READY_PORT: str(READY_PORT),
        pod_settings.DRAIN_SECONDS: str(settings.drain_seconds),
    }
    resources = {
        kind: {name: str(amount) for name, amount in amounts}
        for kind, amounts in (("requests", settings.resources.requests), ("limits", settings.resources.limits))
        if amounts
    }
    return {
        "name": "proxy",
        "image": settings.image or site.image,
        "command": ["lasthop", "proxy"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "securityContext": CONTAINER_SECURITY,
        "ports": [{"name": "ready", "containerPort": READY_PORT}],
        "readinessProbe": {
            "httpGet": {"path": PATH, "port": READY_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 3,
            "failureThreshold": 3,
        },
        "volumeMounts": [
            {"name": "run", "mountPath": RUN_DIR},
            {"name": "xds", "mountPath": CERTIFICATES, "readOnly": True},
        ],
        **({"resources": resources} if resources else {}),
    }
