"""Reads policies for Gateways: BackendTLSPolicies and Google's own."""

from __future__ import annotations

from typing import NamedTuple

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, MissingTrust, Name, NameKind, ServiceBackend, SystemTrust, Trust, TrustRef
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.rule_hops import unseen_policies
from lasthop_import.systems.gke.kinds import BACKEND_POLICY, CLIENT_TLS, OTHER_POLICIES, RESTRICTING, TLS_POLICY


class _Target(NamedTuple):
    namespace: str
    kind: str
    name: str
    section: str


class GKEPolicies:
    """Indexes the policies of Services. The oldest policy counts; a policy for one port takes precedence over one for all."""

    def __init__(self, inputs: Inputs) -> None:
        self._tls: dict[_Target, HopTLS] = {}
        self._mesh: dict[_Target, HopTLS | None] = {}
        self._timeouts: dict[tuple[str, str], int] = {}
        self._owners: dict[_Target, Document] = {}
        self._used: set[Document] = set()
        for document in inputs.of(TLS_POLICY):
            spec = inputs.open(document).child("spec")
            tls = _tls(spec, document)
            for target in _targets(spec, document):
                self._tls.setdefault(target, tls)
                self._owners.setdefault(target, document)
        for document in inputs.of(CLIENT_TLS):
            self._client_tls(inputs.open(document).child("spec"), document)
        for document in inputs.of(BACKEND_POLICY):
            self._backend(inputs.open(document).child("spec"), document)
        for kind in RESTRICTING:
            for document in inputs.of(kind):
                reader = inputs.open(document)
                text = "some requests or clients may have been refused; the new gateway accepts all"
                reader.note(Category.ACCESS_CONTROL, "policy-lost", text, "spec")
        for kind in OTHER_POLICIES:
            for document in inputs.of(kind):
                inputs.open(document).cannot("spec", f"a {kind.kind} has no equivalent")

    def tls(self, inputs: Inputs, backend: ServiceBackend) -> HopTLS | None:
        """Returns the TLS that policies set for a port; None without a policy."""
        namespace, service = backend.namespace, backend.name
        service_port = inputs.port(namespace, service, backend.port)
        port = service_port.name if service_port else ""
        by_section = tuple(
            (target.section, tls)
            for target, tls in sorted(self._tls.items())
            if (target.namespace, target.kind, target.name) == (namespace, "Service", service)
        )
        if unseen := unseen_policies(inputs, backend, by_section):
            self._used |= {self._owners[target] for target in self._tls if target[:3] == (namespace, "Service", service)}
            return unseen
        places = [_Target(namespace, "Service", service, section) for section in (port, "")]
        for target in places if port else places[1:]:
            if target in self._tls:
                self._used.add(self._owners[target])
                return self._tls[target]
        for target in (*places, _Target(namespace, "Namespace", namespace, "")):
            if target in self._mesh:
                return self._mesh[target]
        return None

    def skip_unused(self, inputs: Inputs) -> None:
        """Lists the BackendTLSPolicies of ports without a route; they are not written."""
        for document in inputs.of(TLS_POLICY):
            if document not in self._used:
                inputs.skip(document, "unused", "no imported route uses its target; it is not written")

    def timeout(self, namespace: str, service: str) -> int:
        """Returns the timeout of a GCPBackendPolicy in seconds; 0 means not set."""
        return self._timeouts.get((namespace, service), 0)

    def _client_tls(self, spec: FieldReader, document: Document) -> None:
        default = spec.child("default")
        mode = default.text("tlsMode") or spec.text("tlsMode") or "MutualTLS"
        uris = [alt_name.text("uri") for reader in (spec, default) for alt_name in reader.children("subjectAltNames")]
        suffix = f" (names {', '.join(filter(None, uris))})" if any(uris) else ""
        tls = None
        if mode != "Disable":
            tls = HopTLS(OldLevel.MESH, f"{document.name}: mutual TLS with certificates of Google's mesh{suffix}")
        for target in _targets(spec, document):
            self._mesh.setdefault(target, tls)

    def _backend(self, spec: FieldReader, document: Document) -> None:
        default = spec.child("default")
        seconds = default.integer("timeoutSec") or 0
        for key, text in (("iap", "users had to log in at Google"), ("securityPolicy", "Cloud Armor inspected requests")):
            default.access_control(key, f"{text}; there is no equivalent")
        for key in ("logging", "sessionAffinity", "connectionDraining", "maxRatePerEndpoint", "backendPreference", "scopes"):
            default.cannot(key, "has no equivalent")
        for target in _targets(spec, document):
            if 0 < seconds < 10**8:
                self._timeouts.setdefault((target.namespace, target.name), seconds)


def _targets(spec: FieldReader, document: Document) -> list[_Target]:
    readers = [*([spec.child("targetRef")] if "targetRef" in spec else []), *spec.children("targetRefs")]
    targets = []
    for reader in readers:
        kind, name, section = reader.text("kind"), reader.text("name"), reader.text("sectionName")
        reader.ignore("group", "namespace")
        if kind in ("Service", "Namespace"):
            targets.append(_Target(document.namespace, kind, name, section))
        else:
            reader.note(Category.CANNOT, "target", f"a {kind} cannot be a target", "kind", severity=NoteSeverity.HIGH)
    return targets


def _tls(spec: FieldReader, document: Document) -> HopTLS:
    validation = spec.child("validation")
    hostname, trust, names = validation.text("hostname"), _trust(validation), _names(validation)
    for key in sorted(spec.child("options").value):
        text = "an option of another implementation, which the new gateway ignores"
        spec.child("options").cannot(key, text)
    level = OldLevel.URI if names and all(name.kind is NameKind.URI for name in names) else OldLevel.NAME
    expected = names or ((Name(hostname),) if hostname else ())
    if not trust or not hostname:
        return HopTLS(
            OldLevel.BROKEN, f"{document.name} has no CA certificates or no hostname, so it is invalid", names=expected
        )
    return HopTLS(level, f"{document.name}", names=expected, sni=hostname, trust=trust)


def _trust(validation: FieldReader) -> tuple[Trust, ...]:
    trust: list[Trust] = []
    for ref in validation.children("caCertificateRefs"):
        kind, name = ref.text("kind"), ref.text("name")
        ref.ignore("group")
        if kind in ("ConfigMap", "Secret", "ClusterTrustBundle"):
            trust.append(TrustRef(kind, "" if kind == "ClusterTrustBundle" else validation.namespace, name))
        else:
            trust.append(MissingTrust(f"{kind} {name} is not a kind of CA certificates"))
    if validation.text("wellKnownCACertificates") == "System":
        trust.append(SystemTrust())
    return tuple(trust)


def _names(validation: FieldReader) -> tuple[Name, ...]:
    names = []
    for alt_name in validation.children("subjectAltNames"):
        uri, dns = alt_name.text("uri"), alt_name.text("hostname")
        alt_name.ignore("type")
        if uri or dns:
            names.append(Name(uri, NameKind.URI) if uri else Name(dns))
    return tuple(names)
