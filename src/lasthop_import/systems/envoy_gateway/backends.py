"""Reads Backends: hosts become XBackends, and addresses become a Service with endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.model import AddressBackend, HopTLS, HostBackend, ImportedHop, ServiceBackend
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.rule_hops import Unresolved, resolve, unread_policy, unseen_policies
from lasthop_import.systems.envoy_gateway.backend_tls import (
    BackendTLSPolicies,
    BackendTLSSettings,
    PolicyValidation,
    by_backend,
    by_policy,
    read_settings,
)
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN

XBACKEND = "gateway.networking.x-k8s.io"
Part = HostBackend | AddressBackend | ServiceBackend
"""A backend that replaces endpoints of a Backend. A host in the cluster's domain becomes a Service."""
_SERVICE = re.compile(r"(?P<name>[a-z0-9-]+)\.(?P<namespace>[a-z0-9-]+)\.svc(?:\.cluster\.local)?\.?")


class BackendRefTarget(NamedTuple):
    """The replacement of one backendRef."""

    hop: ImportedHop
    reference: Json
    """kind, name and port of the new reference."""


class _Backend(msgspec.Struct, frozen=True):
    label: str
    parts: tuple[Part, ...]
    tls: BackendTLSSettings | None
    policy: PolicyValidation | None
    h2c: bool


class EnvoyGatewayBackends:
    def __init__(self, inputs: Inputs, policies: BackendTLSPolicies, options: TLSOptions) -> None:
        """`options`: the TLS options of the EnvoyProxy, for all backends."""
        self._inputs = inputs
        self._policies = policies
        self._options = options
        self._known: dict[tuple[str, str], _Backend | None] = {}

    def targets(
        self, reference: Json, namespace: str, source: SourceRef, hosts: tuple[str, ...]
    ) -> tuple[BackendRefTarget, ...]:
        """Returns the targets of a backendRef; several for a Backend with several hosts. `namespace` is the route's."""
        group, kind, name = reference.get("group") or "", reference.get("kind") or "Service", str(reference.get("name") or "")
        backend_namespace = str(reference.get("namespace") or namespace)
        if (group, kind) == ("", "Service"):
            return (BackendRefTarget(self._service(backend_namespace, name, reference.get("port"), source), {}),)
        if (group, kind) != (GROUP, "Backend"):
            return ()
        backend = self._backend(backend_namespace, name)
        if backend is None:
            return ()
        return tuple(self._target(backend, part, source, hosts) for part in backend.parts)

    def is_own(self, reference: Json) -> bool:
        return (reference.get("group"), reference.get("kind")) == (GROUP, "Backend")

    def names(self, namespace: str, name: str) -> list[tuple[str, str, str]]:
        """Returns group, kind and name of the object that replaces a Backend."""
        backend = self._backend(namespace, name)
        return [
            (XBACKEND, "XBackend", part.name) if isinstance(part, HostBackend) else ("", "Service", part.name)
            for part in (backend.parts if backend else ())
        ]

    def _service(self, namespace: str, name: str, port: object, source: SourceRef) -> ImportedHop:
        number = port if isinstance(port, int) and not isinstance(port, bool) else None
        backend = ServiceBackend(namespace, name, number)
        by_section = tuple(
            (section, by_policy(policy, self._options)) for section, policy in self._policies.sections(namespace, name)
        )
        if unseen := unseen_policies(self._inputs, backend, by_section):
            self._policies.use(namespace, name)
            return ImportedHop(source, backend, unseen)
        service_port = self._inputs.port(namespace, name, number)
        policy = self._policies.of("Service", namespace, name, service_port.name if service_port else "")
        tls = by_policy(policy, self._options) if policy else unread_policy(self._inputs, backend)
        return ImportedHop(source, backend, tls)

    def _target(self, backend: _Backend, part: Part, source: SourceRef, hosts: tuple[str, ...]) -> BackendRefTarget:
        endpoint = part.hostname if isinstance(part, HostBackend) else ""
        if isinstance(part, ServiceBackend):
            endpoint = f"{part.name}.{part.namespace}.svc.cluster.local"
        tls = by_backend(backend.label, backend.tls, backend.policy, endpoint, hosts)
        if isinstance(part, HostBackend):
            return BackendRefTarget(ImportedHop(source, part, tls), {"group": XBACKEND, "kind": "XBackend", "name": part.name})
        if tls is not None:
            tls = _merged(tls, self._options)
        hop = ImportedHop(source, part, tls, h2c=backend.h2c and not isinstance(part, ServiceBackend))
        return BackendRefTarget(hop, {"name": part.name, "port": part.port})

    def _backend(self, namespace: str, name: str) -> _Backend | None:
        if (namespace, name) not in self._known:
            self._known[namespace, name] = self._read(namespace, name)
        return self._known[namespace, name]

    def _read(self, namespace: str, name: str) -> _Backend | None:
        document = self._inputs.find("Backend", namespace, name, GROUP)
        if document is None or document.api_version not in OWN["Backend"].api_versions:
            return None
        spec = self._inputs.open(document).child("spec")
        if spec.text("type") == "DynamicResolver":
            text = "the request's Host chose the backend, which is an open proxy; there is no equivalent"
            spec.note(Category.CANNOT, "dynamic-resolver", text, "type", severity=NoteSeverity.HIGH)
        spec.cannot("fallback", "there is no second backend for when the first fails")
        tls = read_settings(self._inputs, spec.child("tls")) if "tls" in spec else None
        policy = self._policies.of("Backend", namespace, name, "")
        h2c = f"{GROUP}/h2c" in spec.texts("appProtocols") and tls is None and policy is None
        endpoints = _endpoints(spec)
        parts: list[Part] = [
            *_hosts(endpoints.hosts, namespace, name, h2c),
            *self._addresses(endpoints.addresses, namespace, name, h2c),
        ]
        return _Backend(document.name, self._resolvable(parts, spec), tls, policy, h2c)

    def _addresses(
        self, addresses: Sequence[tuple[str, int]], namespace: str, name: str, h2c: bool
    ) -> Iterator[AddressBackend]:
        """Yields the Service for the addresses, with an unused name."""
        if addresses:
            taken = self._inputs.find("Service", namespace, name) is not None
            service_name, protocol = f"{name}-backend" if taken else name, "kubernetes.io/h2c" if h2c else ""
            yield AddressBackend(namespace, service_name, addresses[0][1], "backend", tuple(sorted(set(addresses))), protocol)

    def _resolvable(self, parts: Iterable[Part], spec: FieldReader) -> tuple[Part, ...]:
        """Returns the parts that a route can use, and lists the others."""
        kept: list[Part] = []
        for part in parts:
            resolution = resolve(self._inputs, ImportedHop(spec.source(), part))
            if isinstance(resolution, Unresolved):
                text = f"{resolution.problem}; it is left out"
                spec.note(Category.CANNOT, "endpoint", text, None, severity=NoteSeverity.HIGH)
            else:
                kept.append(part)
        return tuple(kept)


class _Endpoints(NamedTuple):
    hosts: list[tuple[str, int]]
    addresses: list[tuple[str, int]]


def _endpoints(spec: FieldReader) -> _Endpoints:
    endpoints = _Endpoints([], [])
    for endpoint in spec.children("endpoints"):
        fqdn, ip = endpoint.child("fqdn"), endpoint.child("ip")
        endpoint.cannot("zone", "zones of endpoints are not read")
        endpoint.cannot("hostname", "the name of a single endpoint is not used")
        if "unix" in endpoint:
            endpoint.note(Category.CANNOT, "unix-socket", "a socket on the gateway's host cannot be a backend", "unix")
        elif "fqdn" in endpoint:
            endpoints.hosts.append((fqdn.text("hostname").lower(), fqdn.integer("port") or 0))
        elif "ip" in endpoint:
            endpoints.addresses.append((ip.text("address"), ip.integer("port") or 0))
    if len(endpoints.hosts) > 1:
        text = "each host is a separate backend now, without failover between them"
        spec.note(Category.CHANGED, "several-hosts", text, None)
    return endpoints


def _hosts(hosts: Sequence[tuple[str, int]], namespace: str, name: str, h2c: bool) -> Iterator[HostBackend | ServiceBackend]:
    """Yields a backend for each host. A host that names a Service in the Backend's namespace becomes that Service."""
    for number, (host, port) in enumerate(hosts, 1):
        backend_name = name if len(hosts) == 1 else f"{name}-{number}"
        service = _SERVICE.fullmatch(host)
        if service and service["namespace"] == namespace:
            yield ServiceBackend(namespace, service["name"], port)
        else:
            yield HostBackend(namespace, backend_name, host, port, "H2C" if h2c else "")


def _merged(tls: HopTLS, options: TLSOptions) -> HopTLS:
    """Returns the TLS with the EnvoyProxy's options where the Backend has none."""
    return tls if tls.options != TLSOptions() else msgspec.structs.replace(tls, options=options)
