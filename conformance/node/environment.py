"""Resolves a container's environment and command: fieldRefs, keys of Secrets and ConfigMaps, `$(VAR)`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any

from conformance.api import Object
from conformance.network import API_SERVICE_IP, NODE_IP

# (kind, namespace, name) -> the object, if it is there
Find = Callable[[str, str, str], Object | None]


class Waiting(Exception):
    """Something that the pod refers to is not there (yet); the kubelet waits for it too."""


def environment(
    pod: Object, container: dict[str, Any], image_env: Mapping[str, str], pod_ip: str, find: Find
) -> dict[str, str]:
    result = dict(image_env)
    result |= {
        "HOSTNAME": pod["metadata"]["name"],
        "KUBERNETES_SERVICE_HOST": API_SERVICE_IP,
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
    }
    for source in container.get("envFrom") or ():
        result |= _all_of(pod, source, find)
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            value = _value_from(pod, entry["valueFrom"], pod_ip, find)
            if value is None:
                continue
        else:
            value = expand(entry.get("value", ""), result)
        result[entry["name"]] = value
    return result


def command(container: dict[str, Any], entrypoint: tuple[str, ...], env: Mapping[str, str]) -> list[str]:
    """`command` replaces the image's entrypoint, `args` its arguments."""
    words = [*(container.get("command") or entrypoint), *(container.get("args") or ())]
    return [expand(word, env) for word in words]


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(VAR)` as Kubernetes has it: `$$` is a dollar sign, an unknown name stays as it is."""
    return re.sub(r"\$(\$|\(([^)]*)\))", lambda match: "$" if match[1] == "$" else env.get(match[2], match[0]), text)


def field(pod: Object, path: str, pod_ip: str) -> str:
    metadata, spec = pod["metadata"], pod["spec"]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        value: str = (metadata.get(match[1]) or {}).get(match[2], "")
        return value
    if path in ("metadata.labels", "metadata.annotations"):
        entries = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{name}="{value}"' for name, value in sorted(entries.items()))
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": NODE_IP,
        "status.hostIPs": NODE_IP,
    }
    if path not in values:
        raise Waiting(f"fieldRef {path} is not supported by this node")
    return str(values[path])


def data_of(item: Object) -> dict[str, bytes]:
    """The keys of a Secret or a ConfigMap as bytes."""
    binary = item.get("data" if item["kind"] == "Secret" else "binaryData") or {}
    text = {} if item["kind"] == "Secret" else item.get("data") or {}
    return {key: value.encode() for key, value in text.items()} | {
        key: base64.b64decode(value) for key, value in binary.items()
    }


def _value_from(pod: Object, source: dict[str, Any], pod_ip: str, find: Find) -> str | None:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], pod_ip)
    for form, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        if form in source:
            reference = source[form]
            data = _data(pod, kind, reference, find)
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            raise Waiting(f"couldn't find key {reference['key']} in {kind} {pod['metadata']['namespace']}/{reference['name']}")
    raise Waiting(f"env valueFrom {', '.join(source)} is not supported by this node")


def _all_of(pod: Object, source: dict[str, Any], find: Find) -> dict[str, str]:
    kind = "Secret" if "secretRef" in source else "ConfigMap"
    data = _data(pod, kind, source.get("secretRef") or source["configMapRef"], find)
    return {source.get("prefix", "") + key: value.decode() for key, value in data.items()}


def _data(pod: Object, kind: str, reference: dict[str, Any], find: Find) -> dict[str, bytes]:
    item = find(kind, pod["metadata"]["namespace"], reference["name"])
    if item is None:
        if reference.get("optional"):
            return {}
        raise Waiting(f'{kind.lower()} "{reference["name"]}" not found')
    return data_of({**item, "kind": kind})
