"""Resolves hops to the ports that policies are about, and groups them: a port has one policy for all routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.names import is_dns_label, is_dns_subdomain
from lasthop_import.inputs import Inputs
from lasthop_import.levels import Level
from lasthop_import.model import AddressBackend, Hop, HopTLS, HostBackend, Imported, RouteKind, Rule, ServiceBackend
from lasthop_import.notes import Category, Note, Severity

H2C: Final = "kubernetes.io/h2c"


class BackendPort(NamedTuple):
    kind: str
    """Service or XBackend."""
    namespace: str
    name: str
    number: int
    section: str = ""
    """The port's name, if it has one."""
    known: bool = True
    """The Service is in the input. If it is not, a policy can only name all of it."""
    app_protocol: str = ""

    @property
    def group(self) -> tuple[str, str, str, int]:
        return (self.kind, self.namespace, self.name, self.number if self.known else 0)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.number}"


class NotInInput(NamedTuple):
    problem: str
    """What is not known for want of it."""


class Leg(NamedTuple):
    """A hop of a rule: one row of the report."""

    hop: Hop
    rule: Rule | None
    role: str
    port: BackendPort | None
    problem: str = ""
    """Why there is no port; then nothing is written that leads there."""
    incomplete: bool = False
    """There is none because the input lacks the Service."""

    @property
    def tls(self) -> HopTLS | None:
        return self.hop.tls


def legs(inputs: Inputs, imported: Imported) -> tuple[Leg, ...]:
    """Returns every hop with its port, in the order of the rules. Where two backends would be written under one name, the
    first is; nothing is sent to the other."""
    names: dict[tuple[str, str, str], tuple[object, ...]] = {}
    found = []
    for leg in _legs(inputs, imported):
        backend = leg.hop.backend
        if leg.port is not None and not isinstance(backend, ServiceBackend):
            taken = isinstance(backend, AddressBackend) and inputs.ports(backend.namespace, backend.name) is not None
            own = _identity(backend)
            if taken or names.setdefault((leg.port.kind, backend.namespace, backend.name), own) != own:
                text = f"another backend already has the name {backend.namespace}/{backend.name}"
                leg = leg._replace(port=None, problem=text)
        found.append(leg)
    return tuple(found)


def _identity(backend: HostBackend | AddressBackend) -> tuple[object, ...]:
    if isinstance(backend, HostBackend):
        return (backend.hostname, backend.port)
    return (backend.addresses, backend.port)


def _legs(inputs: Inputs, imported: Imported) -> Iterator[Leg]:
    for rule in imported.rules:
        for hop in rule.hops:
            yield _leg(inputs, hop, rule, "backend")
        for mirror in rule.mirrors:
            yield _leg(inputs, mirror.hop, rule, "mirror")
        if rule.auth:
            yield _leg(inputs, rule.auth.hop, rule, "auth")
    for hop in imported.hops:
        yield _leg(inputs, hop, None, "backend")


def _leg(inputs: Inputs, hop: Hop, rule: Rule | None, role: str) -> Leg:
    found = resolve(inputs, hop)
    if isinstance(found, NotInInput):
        return Leg(hop, rule, role, None, found.problem, incomplete=True)
    return Leg(hop, rule, role, None, found) if isinstance(found, str) else Leg(hop, rule, role, found)


def resolve(inputs: Inputs, hop: Hop) -> BackendPort | NotInInput | str:
    """Returns the port that a hop leads to, or why none can be written."""
    match hop.backend:
        case ServiceBackend(namespace, name, port):
            return _service_port(inputs, namespace, name, port)
        case HostBackend() as host:
            if is_ip(host.hostname) or not is_dns_subdomain(host.hostname) or host.hostname.endswith(".cluster.local"):
                return f"{host.hostname!r} cannot be the hostname of an XBackend"
            if not (is_dns_label(host.namespace) and is_dns_subdomain(host.name) and 0 < host.port < 65536):
                return f"{host.namespace}/{host.name}, port {host.port} cannot be an XBackend"
            return BackendPort("XBackend", host.namespace, host.name, host.port)
        case AddressBackend() as backend:
            valid = is_dns_label(backend.namespace) and is_dns_label(backend.name) and 0 < backend.port < 65536
            if not valid or not backend.addresses or not all(is_ip(ip) and 0 < n < 65536 for ip, n in backend.addresses):
                return f"{backend.namespace}/{backend.name}, port {backend.port} cannot be a Service of addresses"
            place = (backend.namespace, backend.name, backend.port, backend.port_name)
            return BackendPort("Service", *place, app_protocol=backend.app_protocol)


def _service_port(inputs: Inputs, namespace: str, name: str, port: int | str | None) -> BackendPort | NotInInput | str:
    if not is_dns_label(namespace) or not is_dns_label(name):
        return f"{namespace}/{name} cannot be the name of a Service"
    found = inputs.port(namespace, name, port)
    known = inputs.ports(namespace, name) is not None
    if found is not None and 0 < found.number < 65536:
        return BackendPort("Service", namespace, name, found.number, found.name, known, found.app_protocol)
    if known:
        wanted = "no port is given, and it has not exactly one" if port is None else f"it has no TCP port {port}"
        return f"Service {namespace}/{name}: {wanted}"
    if isinstance(port, str) or port is None:
        number = f"the number of port {port or 'of the hop'}"
        return NotInInput(f"Service {namespace}/{name} is not in the input, so {number} is not known")
    return f"{port} cannot be a port"


def _is_grpc(role: str, rule: Rule) -> bool:
    """Returns whether what is written implies HTTP/2."""
    return rule.auth is not None and rule.auth.grpc if role == "auth" else rule.kind is RouteKind.GRPC


def h2c_notes(hop: Hop, port: BackendPort | None) -> Iterator[Note]:
    """Yields that nothing that is written says HTTP/2, as a GRPCRoute or an XBackend's protocol would."""
    if hop.h2c and port is not None and port.kind == "Service" and port.app_protocol != H2C:
        text = f"{port} was sent HTTP/2 without TLS; without appProtocol: kubernetes.io/h2c it is sent HTTP/1.1 now"
        remedy = "Set appProtocol: kubernetes.io/h2c on the Service's port."
        yield Note(Category.CHANGED, "h2c", text, hop.source, remedy=remedy)


def groups(all_legs: Iterable[Leg]) -> dict[tuple[str, str, str, int], list[Leg]]:
    """Returns the legs that share a policy, by the group of their port, in a stable order."""
    found: dict[tuple[str, str, str, int], list[Leg]] = {}
    for leg in all_legs:
        if leg.port is not None:
            found.setdefault(leg.port.group, []).append(leg)
    return dict(sorted(found.items()))


def leg_notes(all_legs: Iterable[Leg]) -> Iterator[Note]:
    """Yields what the hops by themselves have to say."""
    missing: set[tuple[str, str]] = set()
    for leg in all_legs:
        if leg.problem:
            remedy = "Add the Service to the input." if leg.incomplete else "Correct the reference."
            text = f"{leg.problem}; the reference is left out, and its share of the requests gets 500"
            yield Note(Category.TODO, "port-unknown", text, leg.hop.source, remedy=remedy)
        elif leg.port and not leg.port.known and (leg.port.namespace, leg.port.name) not in missing:
            missing.add((leg.port.namespace, leg.port.name))
            policed = leg.tls is not None and leg.tls.level is not Level.PASSTHROUGH
            effect = "; its policy applies to all of its ports" if policed else ""
            text = f"Service {leg.port.namespace}/{leg.port.name} is not in the input, so its ports have no names{effect}"
            severity = Severity.WARNING if policed else Severity.INFO
            yield Note(Category.CHANGED, "service-missing", text, leg.hop.source, severity=severity)
        if leg.rule is None or not _is_grpc(leg.role, leg.rule):
            yield from h2c_notes(leg.hop, leg.port)
