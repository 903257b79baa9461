"""Builders of the few Kubernetes objects that these tests are about."""

from __future__ import annotations

import base64
from typing import Any

from conformance.api import Object


def mk_pod(
    *containers: dict[str, Any], volumes: list[dict[str, Any]] | None = None, security: Any = None, **spec: Any
) -> Object:
    metadata = {"name": "web-1", "namespace": "shop", "uid": "u1", "labels": {"app": "web"}}
    return {
        "metadata": metadata,
        "spec": {
            "containers": list(containers) or [mk_container()],
            "volumes": volumes or [],
            "securityContext": security or {},
            "nodeName": "node",
            **spec,
        },
    }


def mk_container(image: str = "example.com/echo-basic:v1", **fields: Any) -> dict[str, Any]:
    return {"name": "web", "image": image, **fields}


def mk_secret(**data: str) -> Object:
    return {"kind": "Secret", "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


def mk_service(name: str = "web", ip: str = "10.96.1.1", port: int = 80, port_name: str = "http", **fields: Any) -> Object:
    spec = {"clusterIPs": [ip], "ports": [{"name": port_name, "port": port, "protocol": "TCP"}], **fields}
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec, "status": {}}


def mk_slice(*addresses: str, port: int = 3000, port_name: str = "http", service: str = "web", **conditions: bool) -> Object:
    endpoints = [{"addresses": [address], "conditions": {"ready": True, **conditions}} for address in addresses]
    return {
        "metadata": {"namespace": "shop", "name": "s", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


def mk_find(**secrets: Object) -> Any:
    return lambda kind, namespace, name: secrets.get(name) if (kind, namespace) == ("Secret", "shop") else None
