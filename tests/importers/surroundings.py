"""Makes the objects around a gateway's own: Services with endpoints, Secrets and ConfigMaps with real certificates."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.importers.harness import FILES

Json = dict[str, Any]
CA, NEXT_CA, LEAF = ((FILES / name).read_text() for name in ("ca.pem", "next-ca.pem", "leaf.pem"))
CERTIFICATE, KEY = ((FILES / name).read_text() for name in ("tls.crt", "tls.key"))


def service(namespace: str, name: str, ports: dict[str, int], **port_fields: Any) -> list[Json]:
    """Returns a Service with an EndpointSlice."""
    listed = [{"name": each, "port": number, **port_fields} for each, number in ports.items()]
    metadata = {"name": name, "namespace": namespace}
    labels = {"kubernetes.io/service-name": name}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": listed}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": f"{name}-1", "namespace": namespace, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.7"]}],
            "ports": [{"name": each, "port": number} for each, number in ports.items()],
        },
    ]


def secret(namespace: str, name: str, **data: str) -> Json:
    """Returns a Secret; keys are written with `_` for the dot."""
    content = {key.replace("_", "."): value for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": content}


def config_map(namespace: str, name: str, **data: str) -> Json:
    content = {key.replace("_", "."): value for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": content}


@st.composite
def some(draw: st.DrawFn, values: dict[str, tuple[Any, ...]], most: int) -> Json:
    """Draws some fields, each with one of its values."""
    chosen = draw(st.lists(st.sampled_from(sorted(values)), max_size=most, unique=True))
    return {name: draw(st.sampled_from(values[name])) for name in chosen}
