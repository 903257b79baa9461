"""Writes ReferenceGrants for the references that cross namespaces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lasthop_import.writer.objects import OutputFile
from lasthop_import.writer.stage import Grant, StageOutput, WriterContext

API: Final = "gateway.networking.k8s.io/v1"
MAX_GRANTS: Final = 16


def write_grants(context: WriterContext, grants: Iterable[Grant]) -> StageOutput:
    """Writes one or more ReferenceGrants for each pair of namespaces. They name every object."""
    objects = context.objects()
    groups: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for kind, from_namespace, to_kind, namespace, name in grants:
        groups.setdefault((namespace, kind, from_namespace), set()).add((to_kind, name))
    for (namespace, kind, from_namespace), targets in sorted(groups.items()):
        names = sorted(targets)
        for start in range(0, len(names), MAX_GRANTS):
            to = [{"group": _group(kind), "kind": kind, "name": name} for kind, name in names[start : start + MAX_GRANTS]]
            name = objects.free_name("ReferenceGrant", namespace, f"{kind.lower()}-of-{from_namespace}")
            spec = {"from": [{"group": _group(kind), "kind": kind, "namespace": from_namespace}], "to": to}
            metadata = {"name": name, "namespace": namespace}
            file = OutputFile.ROUTES if kind.endswith("Route") else OutputFile.GATEWAY
            objects.add(file, {"apiVersion": API, "kind": "ReferenceGrant", "metadata": metadata, "spec": spec}, ())
    return StageOutput(objects=tuple(objects.objects))


def _group(kind: str) -> str:
    return {"Service": "", "Secret": "", "ConfigMap": "", "XBackend": "gateway.networking.x-k8s.io"}.get(
        kind, "gateway.networking.k8s.io"
    )
