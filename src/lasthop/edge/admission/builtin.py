"""Checks built-in kinds with the rules that the API server implements in code, across several fields.

Each function takes a structured document, may complete it, and adds problems to `problems`. One rule of the API server is
omitted: endpoint addresses may be loopback, because files mode uses them for processes on this host.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable
from typing import Final

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.base.api.names import DNS_SUBDOMAIN, is_data_key, is_dns_subdomain
from lasthop.edge.admission import attachments
from lasthop.edge.admission.limits import MAX_DATA
from lasthop.edge.admission.problem import FieldProblem, Path, Problems, shown
from lasthop.engine.plan import reasons

Check = Callable[[Key, Json, Problems], None]


def service(key: Key, document: Json, problems: Problems) -> None:
    spec = document["spec"]
    ports = spec.get("ports", [])
    if spec["type"] == "ExternalName":
        name = spec.get("externalName", "").removesuffix(".")
        if not is_dns_subdomain(name):
            message = f"{shown(name)} is not a host name" if name else "required field is missing"
            problems.append(FieldProblem(message, ("spec", "externalName"), f"Use {DNS_SUBDOMAIN}."))
    elif not ports and spec.get("clusterIP") != "None":
        problems.append(FieldProblem("must not be empty", ("spec", "ports"), "Give the Service a port.", reasons.REQUIRED))
    for i, port in enumerate(ports):
        port.setdefault("targetPort", port["port"])
        if len(ports) > 1 and not port.get("name"):
            path = ("spec", "ports", i, "name")
            problems.append(FieldProblem("required when there are several ports", path, "Name each port.", reasons.REQUIRED))
    _unique_names(ports, ("spec", "ports"), problems)


def service_import(key: Key, document: Json, problems: Problems) -> None:
    _unique_names(document["spec"]["ports"], ("spec", "ports"), problems)


def endpoint_slice(key: Key, document: Json, problems: Problems) -> None:
    kind = document["addressType"]
    for i, endpoint in enumerate(document.get("endpoints", [])):
        for j, address in enumerate(endpoint["addresses"]):
            if not _fits(kind, address):
                path = ("endpoints", i, "addresses", j)
                problems.append(FieldProblem(f"{shown(address)} is not an address of type {kind}", path, _other_type(address)))
    _unique_names(document.get("ports", []), ("ports",), problems)


def config_map(key: Key, document: Json, problems: Problems) -> None:
    data, binary = document.get("data", {}), document.get("binaryData", {})
    for name in binary.keys() & data.keys():
        problems.append(
            FieldProblem(f"{shown(name)} is in data and in binaryData", ("binaryData", name), reason=reasons.DUPLICATE)
        )
    _keys_and_size({**data, **_decoded(binary, ("binaryData",), problems)}, ("data",), problems)
    attachments.check(document, problems)


def secret(key: Key, document: Json, problems: Problems) -> None:
    data = {name: value.replace("\r", "").replace("\n", "") for name, value in document.get("data", {}).items()}
    for name, value in document.pop("stringData", {}).items():
        data[name] = base64.b64encode(value.encode()).decode()
    _keys_and_size(_decoded(data, ("data",), problems), ("data",), problems)
    document["data"] = data
    attached = attachments.check(document, problems)
    if document["type"] == "kubernetes.io/tls":
        for name in ("tls.crt", "tls.key"):
            if name not in data and name not in attached:
                remedy = f"Add it, or name a local file in the annotation {attachments.PREFIX}{name}."
                problems.append(
                    FieldProblem("required in a kubernetes.io/tls Secret", ("data", name), remedy, reasons.REQUIRED)
                )


def cluster_trust_bundle(key: Key, document: Json, problems: Problems) -> None:
    path = ("metadata", "name")
    if signer := document["spec"].get("signerName"):
        prefix = signer.replace("/", ":") + ":"
        if not key.name.startswith(prefix) or not is_dns_subdomain(key.name.removeprefix(prefix)):
            remedy = f"With this signerName, begin the name with {prefix}"
            problems.append(FieldProblem(f"{shown(key.name)} is not a valid name", path, remedy))
    elif not is_dns_subdomain(key.name):
        problems.append(FieldProblem(f"{shown(key.name)} is not a valid name", path, f"Use {DNS_SUBDOMAIN}."))


CHECKS: Final[dict[str, Check]] = {
    "Service": service,
    "ServiceImport": service_import,
    "EndpointSlice": endpoint_slice,
    "ConfigMap": config_map,
    "Secret": secret,
    "ClusterTrustBundle": cluster_trust_bundle,
}


def _unique_names(ports: list[Json], path: Path, problems: Problems) -> None:
    seen: dict[str, int] = {}
    for i, port in enumerate(ports):
        name = port.get("name")
        if name is not None and seen.setdefault(name, i) != i:
            message = f"the same name as port {seen[name]}: {shown(name)}"
            problems.append(FieldProblem(message, (*path, i, "name"), "Give each port its own name.", reasons.DUPLICATE))


def _fits(kind: str, address: str) -> bool:
    if kind == "FQDN":
        return is_dns_subdomain(address.removesuffix(".")) and not is_ip(address)
    try:
        return ipaddress.ip_address(address).version == (4 if kind == "IPv4" else 6) and "%" not in address
    except ValueError:
        return False


def _other_type(address: str) -> str:
    fitting = [kind for kind in ("IPv4", "IPv6", "FQDN") if _fits(kind, address)]
    return f"Set addressType to {fitting[0]}, one slice per type." if fitting else ""


def _decoded(data: dict[str, str], path: Path, problems: Problems) -> dict[str, bytes]:
    result = {}
    for name, value in data.items():
        try:
            result[name] = base64.b64decode(value, validate=True)
        except ValueError:
            remedy = "Encode it, or use stringData for plain text." if path == ("data",) else ""
            problems.append(FieldProblem("is not base64", (*path, name), remedy))
    return result


def _keys_and_size(data: Json, path: Path, problems: Problems) -> None:
    for name in data:
        if not is_data_key(name):
            problems.append(
                FieldProblem(f"{shown(name)} is not a valid key", (*path, name), "Use letters, digits, '-', '_', '.'.")
            )
    size = sum(len(value.encode() if isinstance(value, str) else value) for value in data.values())
    if size > MAX_DATA:
        message = f"holds {size} bytes; the limit is {MAX_DATA}"
        problems.append(FieldProblem(message, path, "Split it into several objects.", reasons.TOO_LARGE))
