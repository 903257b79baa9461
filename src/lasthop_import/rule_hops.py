"""Resolves hops to backend ports and groups them by port, because a port has one policy for all routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.names import is_dns_label, is_dns_subdomain
from lasthop_import.documents import mappings
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    AddressBackend,
    HopTLS,
    HostBackend,
    Imported,
    ImportedHop,
    ImportedRule,
    RouteKind,
    ServiceBackend,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.values import is_port

H2C: Final = "kubernetes.io/h2c"


PortGroup = tuple[str, str, str, int]
"""Kind, namespace, name and number of a port; 0 for all ports of a Service that is not in the input."""


class HopPort(NamedTuple):
    kind: str
    """Service or XBackend."""
    namespace: str
    name: str
    number: int
    section: str = ""
    """The port's name, if it has one."""
    known: bool = True
    """The Service is in the input. Otherwise a policy can only target the whole Service."""
    app_protocol: str = ""
    protocol: str = "TCP"

    @property
    def group(self) -> PortGroup:
        kind = self.kind if self.protocol == "TCP" else f"{self.kind} ({self.protocol})"
        return (kind, self.namespace, self.name, self.number if self.known else 0)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.number}"


class Unresolved(NamedTuple):
    """A hop without a port that can be written."""

    problem: str
    remedy: str = "Correct the reference."


class RuleHop(NamedTuple):
    """A hop of a rule: one row of the report."""

    hop: ImportedHop
    rule: ImportedRule | None
    role: str
    port: HopPort | None
    problem: str = ""
    """Why there is no port; then no written object leads there."""
    remedy: str = ""

    @property
    def tls(self) -> HopTLS | None:
        return self.hop.tls

    @property
    def source(self) -> SourceRef:
        return self.hop.source


def rule_hops(inputs: Inputs, imported: Imported, *, experimental: bool = True) -> tuple[RuleHop, ...]:
    """Returns every hop with its port, in the order of the rules. If two backends would be written under one name, only the
    first is written, and nothing is sent to the other. `experimental`: whether XBackends may be written."""
    names: dict[tuple[str, str, str], tuple[object, ...]] = {}
    checked = []
    for rule_hop in _unchecked(inputs, imported):
        backend = rule_hop.hop.backend
        if rule_hop.port is not None and rule_hop.port.kind == "XBackend" and not experimental:
            text = f"{backend.namespace}/{backend.name} is a host outside, and an XBackend needs the experimental channel"
            rule_hop = rule_hop._replace(port=None, problem=text, remedy="Leave out --standard.")
        if rule_hop.port is not None and not isinstance(backend, ServiceBackend):
            taken = isinstance(backend, AddressBackend) and inputs.ports(backend.namespace, backend.name) is not None
            identity = _identity(backend)
            if taken or names.setdefault((rule_hop.port.kind, backend.namespace, backend.name), identity) != identity:
                text = f"another backend already has the name {backend.namespace}/{backend.name}"
                rule_hop = rule_hop._replace(port=None, problem=text, remedy=Unresolved(text).remedy)
        checked.append(rule_hop)
    return tuple(checked)


def _identity(backend: HostBackend | AddressBackend) -> tuple[object, ...]:
    if isinstance(backend, HostBackend):
        return (backend.hostname, backend.port)
    return (backend.addresses, backend.port)


def _unchecked(inputs: Inputs, imported: Imported) -> Iterator[RuleHop]:
    for rule in imported.rules:
        for hop in rule.hops:
            yield _rule_hop(inputs, hop, rule, "backend")
        for mirror in rule.mirrors:
            yield _rule_hop(inputs, mirror.hop, rule, "mirror")
        if rule.auth:
            yield _rule_hop(inputs, rule.auth.hop, rule, "auth")
    for hop in imported.hops:
        yield _rule_hop(inputs, hop, None, "backend")


def _rule_hop(inputs: Inputs, hop: ImportedHop, rule: ImportedRule | None, role: str) -> RuleHop:
    resolution = resolve(inputs, hop)
    return (
        RuleHop(hop, rule, role, None, *resolution)
        if isinstance(resolution, Unresolved)
        else RuleHop(hop, rule, role, resolution)
    )


def resolve(inputs: Inputs, hop: ImportedHop) -> HopPort | Unresolved:
    """Returns the port of a hop, or the reason why none can be written."""
    match hop.backend:
        case ServiceBackend() as service:
            return _service_port(inputs, service)
        case HostBackend() as host:
            return _host_port(host)
        case AddressBackend() as backend:
            return _address_port(backend)


def unseen_service(inputs: Inputs, backend: ServiceBackend, decides: str) -> HopTLS | None:
    """Returns the TLS of a hop to a Service that is not in the input, for a system in which the Service may require TLS;
    None if the Service is known. `decides`: the part of the Service that would decide, for example `its annotations`."""
    if inputs.ports(backend.namespace, backend.name) is not None:
        return None
    name = f"{backend.namespace}/{backend.name}"
    why = f"Service {name} {inputs.absence('Service', *name.split('/'))}, and {decides} would show whether TLS was used"
    return HopTLS(OldLevel.UNKNOWN, why, was_plaintext=True)


def unseen_policies(inputs: Inputs, backend: ServiceBackend, by_section: tuple[tuple[str, HopTLS], ...]) -> HopTLS | None:
    """Returns the TLS of a hop to a Service that is not in the input and whose policies name ports; else None."""
    unseen = unseen_service(inputs, backend, "the names of its ports") if any(section for section, _ in by_section) else None
    return msgspec.structs.replace(unseen, by_section=by_section) if unseen else None


def unread_policy(inputs: Inputs, backend: ServiceBackend, read_versions: bool = True) -> HopTLS | None:
    """Returns the TLS of a hop to a Service that an unread BackendTLSPolicy, or one without targets, may target; else None.
    `read_versions`: whether the system reads any BackendTLSPolicy."""
    kind = KINDS["BackendTLSPolicy"]
    for document in (*inputs.unread_versions(kind), *inputs.of(kind)):
        targets = [*mappings(document.spec.get("targetRefs")), *mappings([document.spec.get("targetRef")])]
        read = read_versions and document.api_version in kind.api_versions
        named = not targets or (not read and any(target.get("name") == backend.name for target in targets))
        if document.namespace == backend.namespace and named:
            why = f"{document.name} is of version {document.api_version}, which is not read"
            if document.api_version in kind.api_versions:
                why = f"{document.name} names no target" if read else f"{document.name} is not read"
            return HopTLS(OldLevel.UNKNOWN, why, was_plaintext=True)
    return None


def _host_port(host: HostBackend) -> HopPort | Unresolved:
    if is_ip(host.hostname) or not is_dns_subdomain(host.hostname) or host.hostname.endswith(".cluster.local"):
        return Unresolved(f"{host.hostname!r} cannot be the hostname of an XBackend")
    if not (is_dns_label(host.namespace) and is_dns_subdomain(host.name) and is_port(host.port)):
        return Unresolved(f"{host.namespace}/{host.name}, port {host.port} cannot be an XBackend")
    return HopPort("XBackend", host.namespace, host.name, host.port)


def _address_port(backend: AddressBackend) -> HopPort | Unresolved:
    valid = is_dns_label(backend.namespace) and is_dns_label(backend.name) and is_port(backend.port)
    if not valid or not backend.addresses or not all(is_ip(ip) and is_port(number) for ip, number in backend.addresses):
        return Unresolved(f"{backend.namespace}/{backend.name}, port {backend.port} cannot be a Service of addresses")
    place = (backend.namespace, backend.name, backend.port, backend.port_name)
    return HopPort("Service", *place, app_protocol=backend.app_protocol)


def _service_port(inputs: Inputs, service: ServiceBackend) -> HopPort | Unresolved:
    namespace, name, port, protocol = service.namespace, service.name, service.port, service.protocol
    if not is_dns_label(namespace) or not is_dns_label(name):
        return Unresolved(f"{namespace}/{name} cannot be the name of a Service")
    service_port = inputs.port(namespace, name, port, protocol)
    known = inputs.ports(namespace, name) is not None
    if service_port is not None and is_port(service_port.number):
        return HopPort(
            "Service", namespace, name, service_port.number, service_port.name, known, service_port.app_protocol, protocol
        )
    if known:
        problem = "no port is given, and it has not exactly one" if port is None else f"it has no {protocol} port {port}"
        return Unresolved(f"Service {namespace}/{name}: {problem}")
    if isinstance(port, str) or port is None:
        problem = f"is not in the input, so the number of {f'port {port}' if port else 'its port'} is not known"
        return Unresolved(f"Service {namespace}/{name} {problem}", "Add the Service to the input.")
    return Unresolved(f"{port} cannot be a port")


def _is_grpc(role: str, rule: ImportedRule) -> bool:
    """Returns whether the written object implies HTTP/2."""
    return rule.auth is not None and rule.auth.grpc if role == "auth" else rule.kind is RouteKind.GRPC


def h2c_notes(hop: ImportedHop, port: HopPort | None) -> Iterator[Note]:
    """Notes HTTP/2 that neither a GRPCRoute nor an XBackend's protocol carries over."""
    if hop.h2c and port is not None and port.kind == "Service" and port.app_protocol != H2C:
        text = f"{port} was sent HTTP/2 without TLS; without appProtocol: kubernetes.io/h2c it is sent HTTP/1.1 now"
        remedy = "Set appProtocol: kubernetes.io/h2c on the Service's port."
        yield Note(Category.TODO, "h2c", text, hop.source, remedy=remedy)


def groups(rule_hops: Iterable[RuleHop]) -> dict[PortGroup, list[RuleHop]]:
    """Returns the hops that share a policy, by the group of their port, in a stable order."""
    by_group: dict[PortGroup, list[RuleHop]] = {}
    for rule_hop in rule_hops:
        if rule_hop.port is not None:
            by_group.setdefault(rule_hop.port.group, []).append(rule_hop)
    return dict(sorted(by_group.items()))


def rule_hop_notes(rule_hops: Iterable[RuleHop]) -> Iterator[Note]:
    """Notes broken references, Services that are not in the input, and HTTP/2 that is not carried over."""
    missing: set[tuple[str, str]] = set()
    for rule_hop in rule_hops:
        port = rule_hop.port
        if port is None:
            yield _unresolved(rule_hop)
        elif not port.known and (port.namespace, port.name) not in missing:
            missing.add((port.namespace, port.name))
            yield _missing_service(rule_hop, port)
        if rule_hop.rule is None or not _is_grpc(rule_hop.role, rule_hop.rule):
            yield from h2c_notes(rule_hop.hop, port)


def _unresolved(rule_hop: RuleHop) -> Note:
    text = f"{rule_hop.problem}; the reference is left out, and its share of the requests gets 500"
    return Note(Category.TODO, "port-unknown", text, rule_hop.source, remedy=rule_hop.remedy)


def _missing_service(rule_hop: RuleHop, port: HopPort) -> Note:
    policed = rule_hop.tls is not None and rule_hop.tls.level is not OldLevel.PASSTHROUGH and not rule_hop.tls.by_section
    effect = "; its policy applies to all of its ports" if policed else ""
    text = f"Service {port.namespace}/{port.name} is not in the input, so its ports have no names{effect}"
    severity = NoteSeverity.WARNING if policed else NoteSeverity.INFO
    return Note(Category.CHANGED, "service-missing", text, rule_hop.source, severity=severity)
