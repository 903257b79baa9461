"""Objects as an API server has them, and statuses that go there."""

from __future__ import annotations

from typing import Any

from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.routes import ParentReference
from lasthop.base.api.status import ConditionStatus, ParentStatus

Json = dict[str, Any]
BEFORE = "2026-01-01T00:00:00Z"


def mk_route(name: str, namespace: str = "shop", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"parentRefs": [{"name": "gw"}], **spec}}


def mk_config_map(name: str, namespace: str = "shop", **data: str) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def mk_policy(name: str, service: str = "erp", namespace: str = "shop", **more: Any) -> Json:
    target = {"group": "", "kind": "Service", "name": service}
    validation = {"hostname": "erp.example.com", "wellKnownCACertificates": "System"}
    spec = {"targetRefs": [target], "validation": validation, **more}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def mk_selector(name: str, namespace: str = "shop", port: int = 8443, **labels: str) -> Json:
    """An XBackend of type EndpointSelector."""
    spec = {"type": "EndpointSelector", "port": {"number": port}, "endpointSelector": {"matchLabels": labels}}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def mk_pod(name: str, ip: str, namespace: str = "shop", *, ready: bool = True, labels: Json | None = None) -> Json:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
    metadata = {"name": name, "namespace": namespace, "labels": labels or {"app": "x"}, "annotations": {"a": "b"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}, "status": status}


def mk_condition(type: str = "Accepted", status: str = "True", generation: int = 1, message: str = "") -> ConditionStatus:
    return ConditionStatus(type, status, type, message, generation)


def mk_parent(name: str, *conditions: ConditionStatus, section: str = "", kind: str = "Gateway") -> ParentStatus:
    ref = ParentReference(name, kind=kind, namespace="shop", section_name=section)
    return ParentStatus(ref, CONTROLLER_NAME, conditions or (mk_condition(),))


def foreign(field: str, name: str) -> Json:
    """As another controller writes it, with fields that we have never heard of."""
    condition = {"type": "Accepted", "status": "Unknown", "reason": "Seeded", "lastTransitionTime": BEFORE, "newField": [1]}
    return {field: {"name": name}, "controllerName": "example.com/other", "conditions": [condition], "extra": {"a": None}}
