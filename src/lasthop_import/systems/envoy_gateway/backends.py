"""Reads Backends: hosts become XBackends, addresses a Service with endpoints."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.legs import resolve
from lasthop_import.model import AddressBackend, Hop, HopTLS, HostBackend, ServiceBackend
from lasthop_import.notes import Category, Severity, Source
from lasthop_import.systems.envoy_gateway.backend_tls import Policies, Policy, Settings, by_backend, by_policy, read_settings
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN

XBACKEND = "gateway.networking.x-k8s.io"


class Target(NamedTuple):
    """What one backendRef becomes."""

    hop: Hop
    reference: Json
    """kind, name and port of the new reference."""


class _Backend(msgspec.Struct, frozen=True):
    label: str
    parts: tuple[HostBackend | AddressBackend, ...]
    tls: Settings | None
    policy: Policy | None
    h2c: bool


class Backends:
    def __init__(self, inputs: Inputs, policies: Policies, options: TLSOptions) -> None:
        """`options`: those of the EnvoyProxy, for all backends."""
        self._inputs = inputs
        self._policies = policies
        self._options = options
        self._known: dict[tuple[str, str], _Backend | None] = {}

    def targets(self, reference: Json, namespace: str, source: Source, hosts: tuple[str, ...]) -> tuple[Target, ...]:
        """Returns what a backendRef of a route in a namespace leads to; several for a Backend with several hosts."""
        group, kind, name = reference.get("group") or "", reference.get("kind") or "Service", str(reference.get("name") or "")
        where = str(reference.get("namespace") or namespace)
        if (group, kind) == ("", "Service"):
            return (Target(self._service(where, name, reference.get("port"), source), {}),)
        if (group, kind) != (GROUP, "Backend"):
            return ()
        found = self._backend(where, name)
        if found is None:
            return ()
        return tuple(self._target(found, part, source, hosts) for part in found.parts)

    def is_own(self, reference: Json) -> bool:
        return (reference.get("group"), reference.get("kind")) == (GROUP, "Backend")

    def names(self, namespace: str, name: str) -> list[tuple[str, str, str]]:
        """Returns group, kind and name of what a Backend becomes."""
        found = self._backend(namespace, name)
        return [
            (XBACKEND, "XBackend", each.name) if isinstance(each, HostBackend) else ("", "Service", each.name)
            for each in (found.parts if found else ())
        ]

    def _service(self, namespace: str, name: str, port: object, source: Source) -> Hop:
        number = port if isinstance(port, int) and not isinstance(port, bool) else None
        known = self._inputs.port(namespace, name, number)
        policy = self._policies.of("Service", namespace, name, known.name if known else "")
        tls = by_policy(policy, self._options) if policy else None
        return Hop(source, ServiceBackend(namespace, name, number), tls)

    def _target(self, found: _Backend, part: HostBackend | AddressBackend, source: Source, hosts: tuple[str, ...]) -> Target:
        endpoint = part.hostname if isinstance(part, HostBackend) else ""
        tls = by_backend(found.label, found.tls, found.policy, endpoint, hosts)
        if isinstance(part, HostBackend):
            return Target(Hop(source, part, tls), {"group": XBACKEND, "kind": "XBackend", "name": part.name})
        if tls is not None:
            tls = _merged(tls, self._options)
        return Target(Hop(source, part, tls, h2c=found.h2c), {"name": part.name, "port": part.port})

    def _backend(self, namespace: str, name: str) -> _Backend | None:
        if (namespace, name) not in self._known:
            self._known[namespace, name] = self._read(namespace, name)
        return self._known[namespace, name]

    def _read(self, namespace: str, name: str) -> _Backend | None:
        document = self._inputs.find("Backend", namespace, name, GROUP)
        if document is None or document.api_version not in OWN["Backend"].api_versions:
            return None
        reader = self._inputs.open(document)
        spec = reader.child("spec")
        if spec.text("type") == "DynamicResolver":
            text = "the request's Host chose the backend, which is an open proxy; there is no equivalent"
            spec.note(Category.CANNOT, "dynamic-resolver", text, "type", severity=Severity.HIGH)
        spec.cannot("fallback", "there is no second backend for when the first fails")
        tls = read_settings(self._inputs, spec.child("tls")) if "tls" in spec else None
        policy = self._policies.of("Backend", namespace, name, "")
        h2c = f"{GROUP}/h2c" in spec.texts("appProtocols") and tls is None and policy is None
        protocol = "H2C" if h2c else ""
        hosts: list[tuple[str, int]] = []
        addresses: list[tuple[str, int]] = []
        for each in spec.children("endpoints"):
            fqdn, ip = each.child("fqdn"), each.child("ip")
            each.cannot("zone", "zones of endpoints are not read")
            each.cannot("hostname", "the name of a single endpoint is not used")
            if "unix" in each:
                each.note(Category.CANNOT, "unix-socket", "a socket on the gateway's host cannot be a backend", "unix")
            elif "fqdn" in each:
                hosts.append((fqdn.text("hostname").lower(), fqdn.integer("port") or 0))
            elif "ip" in each:
                addresses.append((ip.text("address"), ip.integer("port") or 0))
        if len(hosts) > 1:
            text = "each host is a backend of its own now, without failover between them"
            spec.note(Category.CHANGED, "several-hosts", text, None)
        parts: list[HostBackend | AddressBackend] = [
            HostBackend(namespace, name if len(hosts) == 1 else f"{name}-{number}", host, port, protocol)
            for number, (host, port) in enumerate(hosts, 1)
        ]
        if addresses:
            taken = self._inputs.find("Service", namespace, name) is not None
            own, number = f"{name}-backend" if taken else name, addresses[0][1]
            protocol = "kubernetes.io/h2c" if h2c else ""
            parts.append(AddressBackend(namespace, own, number, "backend", tuple(sorted(set(addresses))), protocol))
        problems = {part: resolve(self._inputs, Hop(spec.source(), part)) for part in parts}
        for part, problem in problems.items():
            if isinstance(problem, str):
                parts.remove(part)
                text = f"{problem}; it is left out"
                spec.note(Category.CANNOT, "endpoint", text, None, severity=Severity.HIGH)
        return _Backend(document.name, tuple(parts), tls, policy, h2c)


def _merged(tls: HopTLS, options: TLSOptions) -> HopTLS:
    """Returns the TLS with the EnvoyProxy's options where the Backend has none."""
    return tls if tls.options != TLSOptions() else msgspec.structs.replace(tls, options=options)
