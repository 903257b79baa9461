"""Computes the files of Secret, ConfigMap, downwardAPI and projected volumes. Tokens are passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.api import Object
from conformance.node.atomic import File
from conformance.node.environment import Find, Waiting, data_of, field


def payload(pod: Object, volume: dict[str, Any], pod_ip: str, find: Find, tokens: Mapping[str, str]) -> dict[str, File]:
    """`tokens`: audience -> token, for the serviceAccountToken sources of a projected volume."""
    if "projected" in volume:
        projected = volume["projected"]
        mode, sources = projected.get("defaultMode", 0o644), projected.get("sources") or ()
    else:
        (kind,) = volume.keys() - {"name"}
        source = dict(volume[kind])
        if kind == "secret":
            source["name"] = source.pop("secretName")
        mode, sources = source.get("defaultMode", 0o644), ({kind: source},)
    files: dict[str, File] = {}
    for entry in sources:
        for kind, source in entry.items():
            files |= _source(pod, kind, source, mode, pod_ip, find, tokens)
    return _owned(pod, files)


def references(pod: Object) -> set[tuple[str, str]]:
    """(kind, name) of every Secret and ConfigMap that the pod's volumes and environment are made of."""
    names: set[tuple[str, str]] = set()

    def add(source: dict[str, Any]) -> None:
        for form, kind in _REFERENCES.items():
            if form in source:
                names.add((kind, source[form].get("secretName") or source[form].get("name", "")))

    spec = pod["spec"]
    for volume in spec.get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            add(source)
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        for source in container.get("envFrom") or ():
            add(source)
        for entry in container.get("env") or ():
            add(entry.get("valueFrom") or {})
    return names


_REFERENCES = {
    "secret": "Secret",
    "configMap": "ConfigMap",
    "secretRef": "Secret",
    "configMapRef": "ConfigMap",
    "secretKeyRef": "Secret",
    "configMapKeyRef": "ConfigMap",
}


def _source(
    pod: Object, kind: str, source: dict[str, Any], mode: int, pod_ip: str, find: Find, tokens: Mapping[str, str]
) -> dict[str, File]:
    match kind:
        case "secret" | "configMap":
            return _keys(pod, "Secret" if kind == "secret" else "ConfigMap", source, mode, find)
        case "downwardAPI":
            items = source.get("items") or ()
            return {
                item["path"]: File(field(pod, item["fieldRef"]["fieldPath"], pod_ip).encode(), item.get("mode", mode))
                for item in items
            }
        case "serviceAccountToken":
            context = pod["spec"].get("securityContext") or {}
            uid = context.get("runAsUser")
            # Like the kubelet: readable only by the container's user, if that is known.
            private = uid is not None or "fsGroup" in context
            return {source["path"]: File(tokens[source.get("audience", "")].encode(), 0o600 if private else mode, uid or 0)}
    raise Waiting(f"volume source {kind} is not supported by this node")


def _keys(pod: Object, kind: str, source: dict[str, Any], mode: int, find: Find) -> dict[str, File]:
    item = find(kind, pod["metadata"]["namespace"], source["name"])
    if item is None:
        if source.get("optional"):
            return {}
        raise Waiting(f'{kind.lower()} "{source["name"]}" not found')
    data = data_of({**item, "kind": kind})
    if not source.get("items"):
        return {key: File(content, mode) for key, content in data.items()}
    files = {}
    for entry in source["items"]:
        if entry["key"] in data:
            files[entry["path"]] = File(data[entry["key"]], entry.get("mode", mode))
        elif not source.get("optional"):
            raise Waiting(f"references non-existent {kind.lower()} key: {entry['key']}")
    return files


def _owned(pod: Object, files: dict[str, File]) -> dict[str, File]:
    group = (pod["spec"].get("securityContext") or {}).get("fsGroup")
    if group is None:
        return files
    # fsGroup: the group owns the files and may read what the owner may.
    return {path: File(file.content, file.mode | (file.mode >> 3 & 0o050), file.uid, group) for path, file in files.items()}
