"""Detects unsupported features before a pod starts: the pod stays Pending with the reason instead of running in part."""

from __future__ import annotations

from typing import Any

from conformance.api import Object
from conformance.node.images import Images
from conformance.node.security import forbidden_sysctls

_VOLUMES = {"secret", "configMap", "emptyDir", "projected", "downwardAPI"}
_PROBES = {"httpGet", "tcpSocket"}


def unsupported(pod: Object, images: Images) -> list[str]:
    spec = pod["spec"]
    problems = [f"sysctl {name} is not in the set of safe sysctls" for name in forbidden_sysctls(pod)]
    problems += [f"spec.{name}" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    for volume in spec.get("volumes") or ():
        problems += [f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - _VOLUMES]
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy"):
            problems.append(f"container {container['name']}: restartPolicy of an init container")
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        problems += [f"container {container['name']}: {problem}" for problem in _container(container, images)]
    return problems


def _container(container: dict[str, Any], images: Images) -> list[str]:
    problems = []
    if images.find(container["image"]) is None:
        problems.append(f"image {container['image']} is not in conformance/node/images.py")
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        if probe in container and not _PROBES & container[probe].keys():
            problems.append(f"{probe} other than httpGet and tcpSocket")
    if "lifecycle" in container:
        problems.append("lifecycle hooks")
    return problems
