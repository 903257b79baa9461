"""Writes backends: XBackends for hosts outside, Services for addresses, and, in a folder, what the input has."""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from lasthop.base.api.documents import Json
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import AddressBackend, HostBackend
from lasthop_import.notes import SourceRef
from lasthop_import.rule_hops import RuleHop
from lasthop_import.writer.objects import ObjectWriter, OutputFile

XAPI = "gateway.networking.x-k8s.io/v1alpha1"


def write_backends(
    objects: ObjectWriter,
    rule_hops: Sequence[RuleHop],
    tls: Mapping[tuple[str, str], Json],
    plaintext: Container[tuple[str, str, int]] = (),
) -> None:
    """Writes the objects that hops to hosts and addresses need, each once. `plaintext`: ports that must not say otherwise."""
    sources: dict[HostBackend | AddressBackend, list[SourceRef]] = {}
    for rule_hop in rule_hops:
        if rule_hop.port is not None and isinstance(rule_hop.hop.backend, HostBackend | AddressBackend):
            sources.setdefault(rule_hop.hop.backend, []).append(rule_hop.source)
    for backend, found in sources.items():
        metadata = {"name": backend.name, "namespace": backend.namespace}
        if isinstance(backend, HostBackend):
            spec: Json = {"type": "ExternalHostname", "externalHostname": {"hostname": backend.hostname}}
            spec["port"] = {"number": backend.port}
            if backend.protocol:
                spec["protocol"] = backend.protocol
            if own := tls.get((backend.namespace, backend.name)):
                spec["tls"] = own
            objects.add(
                OutputFile.BACKENDS, {"apiVersion": XAPI, "kind": "XBackend", "metadata": metadata, "spec": spec}, found
            )
        else:
            _addresses(objects, backend, metadata, found, plaintext)


def _addresses(
    objects: ObjectWriter,
    backend: AddressBackend,
    metadata: Json,
    sources: Sequence[SourceRef],
    plaintext: Container[tuple[str, str, int]],
) -> None:
    port: Json = {"name": backend.port_name, "port": backend.port}
    if backend.app_protocol:
        port["appProtocol"] = backend.app_protocol
    service: Json = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [port]}}
    objects.add(OutputFile.BACKENDS, _saying_plaintext(service, plaintext), sources)
    slices: dict[tuple[str, int], list[str]] = {}
    for address, number in backend.addresses:
        slices.setdefault((f"IPv{ipaddress.ip_address(address).version}", number), []).append(address)
    for (family, number), addresses in sorted(slices.items()):
        name = objects.free_name("EndpointSlice", backend.namespace, f"{backend.name}-{family.lower()}-{number}")
        labels = {"kubernetes.io/service-name": backend.name}
        endpoints: Json = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": backend.namespace, "labels": labels},
            "addressType": family,
            "endpoints": [{"addresses": [each]} for each in addresses],
            "ports": [{"name": backend.port_name, "port": number}],
        }
        objects.add(OutputFile.BACKENDS, endpoints, sources)


def keep(
    objects: ObjectWriter,
    inputs: Inputs,
    rule_hops: Iterable[RuleHop],
    referenced: Iterable[tuple[str, str, str]],
    plaintext: Container[tuple[str, str, int]] = (),
) -> None:
    """Copies what the written objects refer to: Services with their EndpointSlices, and ConfigMaps. A folder has no API server
    that holds them. `referenced`: kind, namespace and name of more; `plaintext`: ports that must not say otherwise."""
    services = {
        (rule_hop.port.namespace, rule_hop.port.name)
        for rule_hop in rule_hops
        if rule_hop.port is not None and rule_hop.port.kind == "Service"
    }
    wanted = sorted({*(("Service", *each) for each in services), *referenced})
    for kind, namespace, name in wanted:
        if found := inputs.find(kind, namespace, name):
            file = OutputFile.SECRETS if kind == "Secret" else OutputFile.BACKENDS if kind == "Service" else OutputFile.TRUST
            kept = _cleaned(found.value)
            objects.add(file, _saying_plaintext(kept, plaintext) if kind == "Service" else kept, ())
    for document in inputs.documents:
        if document.kind == "EndpointSlice" and (document.namespace, service_of(document)) in services:
            objects.add(OutputFile.BACKENDS, _cleaned(document.value), ())


def _saying_plaintext(service: Json, ports: Container[tuple[str, str, int]]) -> Json:
    """Returns a Service without the appProtocol of these ports."""
    spec, place = service.get("spec"), (service["metadata"].get("namespace", ""), service["metadata"]["name"])
    if not isinstance(spec, dict) or not isinstance(spec.get("ports"), list):
        return service
    kept = [
        {key: value for key, value in each.items() if key != "appProtocol"} if _port(place, each) in ports else each
        for each in spec["ports"]
    ]
    return {**service, "spec": {**spec, "ports": kept}}


def _port(place: tuple[str, str], port: Any) -> tuple[str, str, int]:
    number = port.get("port") if isinstance(port, dict) else None
    return (*place, number if isinstance(number, int) else 0)


def service_of(endpoints: Document) -> str:
    """Returns the name of the Service that an EndpointSlice belongs to."""
    labels = endpoints.metadata.get("labels")
    return str(labels.get("kubernetes.io/service-name", "")) if isinstance(labels, dict) else ""


def _cleaned(document: Json) -> Json:
    """Returns an object without what an API server has added, and without null fields."""
    metadata = document.get("metadata") or {}
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key) is not None}
    if "annotations" in kept:
        kept["annotations"] = {
            key: value for key, value in kept["annotations"].items() if not key.startswith("kubectl.kubernetes.io/")
        }
        if not kept["annotations"]:
            del kept["annotations"]
    rest = {key: _without_nulls(value) for key, value in document.items() if key not in ("metadata", "status")}
    return {"apiVersion": rest.pop("apiVersion"), "kind": rest.pop("kind"), "metadata": kept, **rest}


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nulls(below) for key, below in value.items() if below is not None}
        case list():
            return [_without_nulls(below) for below in value]
        case _:
            return value
