"""Determines how Contour verifies a backend: only by `validation` with the protocol tls or h2, else not at all.

The protocol is that of the HTTPProxy, else the Service port's appProtocol, else an annotation of the Service. Contour silently
ignores `validation` with any other protocol. [internal/dag/httpproxy_processor.go, accessors.go, internal/envoy/v3/auth.go]
"""

from __future__ import annotations

import msgspec

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import Backend, HopTLS, HostBackend, ImportedHop, MissingTrust, Name, ServiceBackend, Trust, TrustRef
from lasthop_import.names import shortened
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.contour.kinds import EXTENSION_SERVICE, ContourConfig, Delegations, secret_name

TLS = ("tls", "h2")
PLAIN = ("", "h2c")
UNKNOWN = "unknown"
"""The Service, whose annotation decides, is not in the input."""
OLD = "old"
"""An annotation of the Service, which Contour read before version 1.0, may decide."""
_OLD_PROTOCOL = "contour.heptio.com/upstream-protocol."
APP_PROTOCOLS = {"https": "tls", "kubernetes.io/h2c": "h2c"}


class ContourBackends:
    def __init__(self, inputs: Inputs, delegations: Delegations, config: ContourConfig) -> None:
        self._inputs = inputs
        self._delegations = delegations
        self._config = config

    def hop(self, reader: FieldReader, sni: str) -> ImportedHop | None:
        """Returns the hop of an entry of `services`; `sni`: the Host of the sent requests, if it is fixed."""
        name, port = reader.text("name"), reader.integer("port") or 0
        protocol = reader.text("protocol") or self.protocol(reader.namespace, name, port)
        backend = self.backend(reader.namespace, name, port)
        reader.cannot("healthPort", "endpoints are not probed")
        sni = sni or (backend.hostname if isinstance(backend, HostBackend) else "")
        tls = self._tls(reader, protocol, sni)
        return self._made(reader, backend, tls, protocol)

    def _made(self, reader: FieldReader, backend: Backend, tls: HopTLS | None, protocol: str) -> ImportedHop:
        if isinstance(backend, HostBackend):
            wire = {"h2c": "H2C", "tls": "HTTP11"}.get(protocol, "")
            backend = msgspec.structs.replace(backend, protocol=wire)
            if tls is not None:
                tls = msgspec.structs.replace(tls, options=msgspec.structs.replace(tls.options, alpn=()))
        return ImportedHop(reader.source(), backend, tls, h2c=protocol == "h2c")

    def backend(self, namespace: str, name: str, port: int | str | None) -> Backend:
        document = self._inputs.find("Service", namespace, name)
        spec = document.spec if document else {}
        if spec.get("type") == "ExternalName" and isinstance(port, int):
            return HostBackend(namespace, shortened(f"{name}-{port}"), str(spec.get("externalName", "")).lower(), port)
        return ServiceBackend(namespace, name, port or None)

    def protocol(self, namespace: str, name: str, port: int | str | None) -> str:
        service_port = self._inputs.port(namespace, name, port)
        if self._inputs.ports(namespace, name) is None:
            return UNKNOWN
        if service_port is None:
            return ""
        if service_port.app_protocol:
            return APP_PROTOCOLS.get(service_port.app_protocol, "")
        annotations = self._inputs.annotations("Service", namespace, name)
        listed = {
            protocol: [
                part.strip() for part in annotations.get(f"projectcontour.io/upstream-protocol.{protocol}", "").split(",")
            ]
            for protocol in ("tls", "h2c", "h2")
        }
        for identifier in (service_port.name, str(service_port.number)):
            for protocol, ports in listed.items():
                if identifier and identifier in ports:
                    return protocol
        return OLD if any(key.startswith(_OLD_PROTOCOL) for key in annotations) else ""

    def ingress_tls(self, protocol: str) -> HopTLS | None:
        """Returns the TLS of an Ingress's backend. Contour cannot verify it."""
        if protocol in (UNKNOWN, OLD):
            return _unknown(protocol)
        if protocol in PLAIN:
            return None
        why = f"the Service's protocol is {protocol}; an Ingress cannot verify backends"
        client, options = self._config.client, self._options(protocol)
        return HopTLS(OldLevel.UNVERIFIED, why, client_certificate=client, shown_to_all=True, options=options)

    def extension(self, reference: FieldReader, namespace: str) -> ImportedHop | None:
        """Returns the hop to an ExtensionService: by default h2 over unverified TLS."""
        owner, name = reference.text("namespace") or namespace, reference.text("name")
        reference.ignore("apiVersion")
        document = self._inputs.find("ExtensionService", owner, name, EXTENSION_SERVICE.group)
        if document is None:
            return None
        spec = self._inputs.open(document).child("spec")
        services = spec.children("services")
        for key in ("loadBalancerPolicy", "timeoutPolicy", "protocolVersion", "circuitBreakerPolicy"):
            spec.cannot(key, "has no equivalent")
        for service in services:
            service.ignore("weight")
        for service in services[1:]:
            service.note(Category.CANNOT, "extension-services", "only the first of several is used")
            service.ignore("name", "port")
        if not services:
            spec.ignore("protocol", "validation")
            return None
        protocol = spec.text("protocol") or "h2"
        names = spec.child("validation").texts("subjectNames") or (spec.child("validation").text("subjectName"),)
        backend = self.backend(document.namespace, services[0].text("name"), services[0].integer("port") or 0)
        tls = self._tls(spec, protocol, names[0])
        return self._made(services[0], backend, tls, protocol)

    # --- levels ------------------------------------------------------------------------------------------------------

    def _tls(self, reader: FieldReader, protocol: str, sni: str) -> HopTLS | None:
        validation = reader.child("validation")
        names = tuple(dict.fromkeys(n for n in (validation.text("subjectName"), *validation.texts("subjectNames")) if n))
        secret = validation.text("caSecret")
        base = HopTLS(
            OldLevel.UNVERIFIED,
            f"protocol {protocol} without validation, which accepts any certificate",
            names=tuple(map(Name, names)),
            sni=sni,
            client_certificate=self._config.client,
            shown_to_all=True,
            options=self._options(protocol),
        )
        if "validation" in reader:
            trust, problem = self._trust(secret, reader)
            problem = problem or ("" if names else "validation has no subjectName")
            return _validated(reader, protocol, msgspec.structs.replace(base, trust=trust), problem)
        if protocol in (UNKNOWN, OLD):
            return _unknown(protocol)
        if protocol in PLAIN:
            return None
        return base if protocol in TLS else _unserved(protocol, base)

    def _trust(self, text: str, reader: FieldReader) -> tuple[tuple[Trust, ...], str]:
        namespace = reader.namespace
        if not text:
            return (MissingTrust("validation has no caSecret"),), "validation has no caSecret"
        secret = secret_name(text, namespace)
        data = self._inputs.data("Secret", *secret)
        problem = ""
        if not self._delegations.permit(secret, namespace):
            problem = f"no TLSCertificateDelegation lets namespace {namespace} use Secret {secret}"
        elif data is None:
            text = f"Secret {secret} {self._inputs.absence('Secret', *secret)}; it is taken to have a ca.crt"
            reader.note(Category.TODO, "secret-missing", text, severity=NoteSeverity.WARNING)
        elif "ca.crt" not in data:
            problem = f"Secret {secret} has no ca.crt"
        return (TrustRef("Secret", *secret),), problem

    def _options(self, protocol: str) -> TLSOptions:
        return msgspec.structs.replace(self._config.options, alpn=("h2",) if protocol == "h2" else ("http/1.1",))


def _validated(reader: FieldReader, protocol: str, base: HopTLS, problem: str) -> HopTLS:
    """Returns the TLS of a backend with `validation`; `problem`: the reason why Contour does not serve it."""
    named = msgspec.structs.replace(base, level=OldLevel.NAME, why=f"protocol {protocol} with validation")
    if protocol in (UNKNOWN, OLD):
        if problem:
            return _unknown(protocol)
        text = "the Service is not in the input, and it decides whether TLS was used; TLS is assumed"
        reader.note(Category.TODO, "protocol-unknown", text, remedy="Add it to the input.")
        return msgspec.structs.replace(named, why="validation, if the Service requires TLS")
    if protocol in PLAIN:
        why = "validation is not used without the protocol tls or h2: nothing was encrypted"
        belief = {"believed": OldLevel.NAME, "believed_reason": "validation-without-tls", "was_plaintext": True}
        return msgspec.structs.replace(base, level=OldLevel.BROKEN, why=why, **belief)
    if protocol not in TLS:
        return _unserved(protocol, base)
    if problem:
        return msgspec.structs.replace(base, level=OldLevel.BROKEN, why=f"{problem}, so that the HTTPProxy was not served")
    return named


def _unserved(protocol: str, base: HopTLS) -> HopTLS:
    why = f"protocol {protocol!r} is unknown to Contour, so that the route was not served"
    return HopTLS(OldLevel.BROKEN, why, names=base.names, trust=base.trust)


def _unknown(protocol: str) -> HopTLS:
    why = "the Service is not in the input, and its annotations and appProtocol decide whether TLS was used"
    if protocol == OLD:
        why = f"the Service has annotations {_OLD_PROTOCOL}*, which only an old Contour read"
    return HopTLS(OldLevel.UNKNOWN, why, was_plaintext=True)
