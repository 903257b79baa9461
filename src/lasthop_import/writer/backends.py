"""Writes backends: XBackends for external hosts, Services for addresses, and in a folder also referenced objects of the
input."""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lasthop.base.api.core import CRL_KEY
from lasthop.base.api.documents import Json
from lasthop.base.api.profiles import PREFIX
from lasthop_import.inputs import service_of
from lasthop_import.model import AddressBackend, HostBackend
from lasthop_import.notes import SourceRef
from lasthop_import.rule_hops import RuleHop
from lasthop_import.writer.objects import ObjectWriter, OutputFile, Written
from lasthop_import.writer.stage import StageOutput, WriterContext

XAPI: Final = "gateway.networking.x-k8s.io/v1alpha1"
REFERENCES: Final = ("certificateRefs", "clientCertificateRef", "caCertificateRefs")
CLIENT_CERTIFICATE: Final = f"{PREFIX}client-certificate"
ALLOCATED: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort", "loadBalancerIP")
"""Fields of a Service that belong to one cluster; `None`, of a headless Service, stays."""
COPIED_TO: Final = {"Secret": OutputFile.SECRETS, "Service": OutputFile.BACKENDS}


def write_backends(
    context: WriterContext,
    rule_hops: Iterable[RuleHop],
    tls: Mapping[tuple[str, str], Json],
    plaintext: Container[tuple[str, str, int]],
) -> StageOutput:
    """Writes the objects that hops to hosts and addresses need, each once. `tls`: the TLS of XBackends; `plaintext`: ports
    whose appProtocol must not require TLS."""
    objects = context.objects()
    sources: dict[HostBackend | AddressBackend, list[SourceRef]] = {}
    for rule_hop in rule_hops:
        if rule_hop.port is not None and isinstance(rule_hop.hop.backend, HostBackend | AddressBackend):
            sources.setdefault(rule_hop.hop.backend, []).append(rule_hop.source)
    for backend, backend_sources in sources.items():
        metadata = {"name": backend.name, "namespace": backend.namespace}
        if isinstance(backend, HostBackend):
            spec = _host_spec(backend, tls.get((backend.namespace, backend.name)))
            document = {"apiVersion": XAPI, "kind": "XBackend", "metadata": metadata, "spec": spec}
            objects.add(OutputFile.BACKENDS, document, backend_sources)
        else:
            _addresses(objects, backend, metadata, backend_sources, plaintext)
    return StageOutput(objects=tuple(objects.objects))


def _host_spec(backend: HostBackend, tls: Json | None) -> Json:
    spec: Json = {"type": "ExternalHostname", "externalHostname": {"hostname": backend.hostname}}
    spec["port"] = {"number": backend.port}
    if backend.protocol:
        spec["protocol"] = backend.protocol
    return {**spec, "tls": tls} if tls else spec


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
            "endpoints": [{"addresses": [address]} for address in addresses],
            "ports": [{"name": backend.port_name, "port": number}],
        }
        objects.add(OutputFile.BACKENDS, endpoints, sources)


class KeptObjects(NamedTuple):
    """Objects of the input that written objects refer to. Without an API server, files must contain them."""

    objects: tuple[Written, ...]
    context: tuple[Written, ...]


def keep_referenced(
    context: WriterContext,
    written: Sequence[Written],
    rule_hops: Iterable[RuleHop],
    plaintext: Container[tuple[str, str, int]],
) -> KeptObjects:
    """Copies Services with their EndpointSlices, ConfigMaps and Secrets; Secrets are written only with --with-secrets.
    `plaintext`: ports whose appProtocol must not require TLS."""
    settings = context.settings
    present = {(output.kind, output.key[0], output.key[2]) for output in written}
    references = referenced(written) - present
    secrets = {reference for reference in references if reference[0] == "Secret" and not _is_public(context, reference)}
    services = _services(rule_hops)
    public = _copied(context, {*(("Service", *service) for service in services), *(references - secrets)}, services, plaintext)
    private = _copied(context, secrets, (), ())
    if settings.in_cluster:
        return KeptObjects((), (*public, *private))
    return KeptObjects((*public, *private), ()) if settings.with_secrets else KeptObjects(public, private)


def _services(rule_hops: Iterable[RuleHop]) -> set[tuple[str, str]]:
    ports = (rule_hop.port for rule_hop in rule_hops)
    return {(port.namespace, port.name) for port in ports if port is not None and port.kind == "Service"}


def _copied(
    context: WriterContext,
    references: Iterable[tuple[str, str, str]],
    services: Container[tuple[str, str]],
    plaintext: Container[tuple[str, str, int]],
) -> tuple[Written, ...]:
    """Returns objects of the input by kind, namespace and name, and the EndpointSlices of `services`."""
    objects = context.objects()
    for kind, namespace, name in sorted(references):
        if original := context.inputs.find(kind, namespace, name):
            kept = _cleaned(original.value)
            kept = _saying_plaintext(_of_no_cluster(kept), plaintext) if kind == "Service" else kept
            objects.add(COPIED_TO.get(kind, OutputFile.TRUST), kept, ())
    for document in context.inputs.documents:
        if document.kind == "EndpointSlice" and (document.namespace, service_of(document)) in services:
            objects.add(OutputFile.BACKENDS, _cleaned(document.value), ())
    return tuple(objects.objects)


def referenced(objects: Iterable[Written]) -> set[tuple[str, str, str]]:
    """Returns the ConfigMaps and Secrets that objects refer to: kind, namespace and name."""
    return {
        reference
        for output in objects
        if output.kind in ("Gateway", "ListenerSet", "BackendTLSPolicy", "XBackend", "PinSet")
        for reference in _references(output.document.get("spec"), output.key[0], "")
    }


def _references(value: object, namespace: str, inside: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict):
        kind = value.get("kind", "Secret")
        if inside in REFERENCES and kind in ("ConfigMap", "Secret"):
            yield kind, value.get("namespace", namespace), value["name"]
        if isinstance(value.get(CLIENT_CERTIFICATE), str):
            yield "Secret", namespace, value[CLIENT_CERTIFICATE]
        for key, below in value.items():
            yield from _references(below, namespace, key)
    elif isinstance(value, list):
        for below in value:
            yield from _references(below, namespace, inside)


def _is_public(context: WriterContext, secret: tuple[str, str, str]) -> bool:
    """Returns whether a Secret of the input holds nothing but CA certificates and revocation lists."""
    content = context.inputs.data(*secret)
    return bool(content) and content is not None and content.keys() <= {"ca.crt", CRL_KEY}


def _of_no_cluster(service: Json) -> Json:
    """Returns a Service without the fields that the API server of the old cluster has allocated."""
    spec = service.get("spec")
    if not isinstance(spec, dict):
        return service
    kept = {key: value for key, value in spec.items() if key not in ALLOCATED or value == "None"}
    if isinstance(ports := spec.get("ports"), list):
        kept["ports"] = [
            {key: value for key, value in port.items() if key != "nodePort"} if isinstance(port, dict) else port
            for port in ports
        ]
    return {**service, "spec": kept}


def _saying_plaintext(service: Json, ports: Container[tuple[str, str, int]]) -> Json:
    """Returns a Service without the appProtocol of these ports."""
    spec, place = service.get("spec"), (service["metadata"].get("namespace", ""), service["metadata"]["name"])
    if not isinstance(spec, dict) or not isinstance(spec.get("ports"), list):
        return service
    kept = [
        {key: value for key, value in port.items() if key != "appProtocol"} if _port(place, port) in ports else port
        for port in spec["ports"]
    ]
    return {**service, "spec": {**spec, "ports": kept}}


def _port(place: tuple[str, str], port: Any) -> tuple[str, str, int]:
    number = port.get("port") if isinstance(port, dict) else None
    return (*place, number if isinstance(number, int) else 0)


def _cleaned(document: Json) -> Json:
    """Returns an object without null fields and without the fields that an API server adds."""
    metadata = document.get("metadata") or {}
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key) is not None}
    if "annotations" in kept:
        kept["annotations"] = {
            key: value for key, value in kept["annotations"].items() if not key.startswith("kubectl.kubernetes.io/")
        }
        if not kept["annotations"]:
            del kept["annotations"]
    fields = {key: _without_nulls(value) for key, value in document.items() if key not in ("metadata", "status")}
    return {"apiVersion": fields.pop("apiVersion"), "kind": fields.pop("kind"), "metadata": kept, **fields}


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nulls(below) for key, below in value.items() if below is not None}
        case list():
            return [_without_nulls(below) for below in value]
        case _:
            return value
