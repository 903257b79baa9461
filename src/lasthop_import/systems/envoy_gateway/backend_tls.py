"""Determines how Envoy Gateway verifies a backend: by a BackendTLSPolicy, by the tls of a Backend, or by both, merged.

The trap: `insecureSkipVerify` of a Backend stays in force even with an accepted policy.
[internal/gatewayapi/backendtlspolicy.go, internal/xds/translator/translator.go]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from lasthop.base.api.kinds import KINDS
from lasthop.engine.plan.tls_options import CIPHER_SUITES, OPTIONS, TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, MissingTrust, Name, NameKind, ObjectName, SystemTrust, Trust, TrustRef
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.envoy_gateway.kinds import GROUP

_CURVES: Final = next(option.values for option in OPTIONS if option.name == "curves")


class PolicyValidation(msgspec.Struct, frozen=True):
    """The validation of one BackendTLSPolicy."""

    label: str
    hostname: str
    names: tuple[Name, ...]
    trust: tuple[Trust, ...]
    problem: str = ""
    """The reason why Envoy Gateway does not accept it; its routes then answer 500."""


class BackendTLSSettings(msgspec.Struct, frozen=True):
    """The tls of a Backend, or the backendTLS of an EnvoyProxy."""

    skip: bool = False
    sni: str = ""
    from_endpoint: bool = False
    trust: tuple[Trust, ...] = ()
    problem: str = ""
    client: ObjectName | None = None
    options: TLSOptions = TLSOptions()


class BackendTLSPolicies:
    """Indexes BackendTLSPolicies by target."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._by_target: dict[tuple[str, str, str, str], PolicyValidation] = {}
        self._used: set[str] = set()
        for document in inputs.of(KINDS["BackendTLSPolicy"]):
            reader = inputs.open(document)
            spec = reader.child("spec")
            policy = self._policy(reader, spec.child("validation"))
            spec.cannot("options", "options of Envoy Gateway's policies are not read")
            for target in spec.children("targetRefs"):
                group, kind = target.text("group"), target.text("kind")
                key = (kind, reader.namespace, target.text("name"), target.text("sectionName"))
                if (group, kind) not in (("", "Service"), (GROUP, "Backend")):
                    text = f"a policy for kind {kind[:60]} cannot be carried over"
                    target.note(Category.CANNOT, "target-kind", text, None, severity=NoteSeverity.HIGH)
                elif self._by_target.setdefault(key, policy) is not policy:
                    text = f"{self._by_target[key].label} is older and holds for the same port"
                    target.note(Category.SKIPPED, "conflicted", text, None)

    def of(self, kind: str, namespace: str, name: str, section: str) -> PolicyValidation | None:
        """Returns the policy that names a port, else the policy for all ports."""
        policy = self._by_target.get((kind, namespace, name, section)) or self._by_target.get((kind, namespace, name, ""))
        if policy is not None:
            self._used.add(policy.label)
        return policy

    def sections(self, namespace: str, service: str) -> list[tuple[str, PolicyValidation]]:
        """Returns the policies of a Service with their port names; "" means all ports."""
        keys = sorted(key for key in self._by_target if key[:3] == ("Service", namespace, service))
        return [(key[3], self._by_target[key]) for key in keys]

    def use(self, namespace: str, service: str) -> None:
        self._used |= {policy.label for _, policy in self.sections(namespace, service)}

    def skip_unused(self) -> None:
        """Lists the policies of ports without a route; they are not written."""
        for document in self._inputs.of(KINDS["BackendTLSPolicy"]):
            if document.name not in self._used:
                self._inputs.skip(document, "unused", "no imported route uses its target; it is not written")

    def _policy(self, reader: FieldReader, validation: FieldReader) -> PolicyValidation:
        hostname = validation.text("hostname").lower()
        names = []
        for alt_name in validation.children("subjectAltNames"):
            kind = alt_name.text("type")
            uri, host = alt_name.text("uri"), alt_name.text("hostname")
            names.append(Name(uri, NameKind.URI) if kind == "URI" else Name(host))
        trust, problem = trust_of(self._inputs, validation)
        if not trust and not problem:
            problem = "it names no CA"
        return PolicyValidation(reader.document.name, hostname, tuple(names) or (Name(hostname),), trust, problem)


def trust_of(inputs: Inputs, reader: FieldReader) -> tuple[tuple[Trust, ...], str]:
    """Reads caCertificateRefs and wellKnownCACertificates; returns the trusted CAs, or none and the reason."""
    trust: list[Trust] = []
    for ref in reader.children("caCertificateRefs"):
        ca = _referenced_ca(inputs, ref)
        if isinstance(ca, str):
            return (), ca
        trust.append(ca)
    system = reader.text("wellKnownCACertificates")
    if system and system != "System":
        return (), f"wellKnownCACertificates is {system[:60]}"
    return (SystemTrust(),) if system and not trust else tuple(trust), ""


def _referenced_ca(inputs: Inputs, ref: FieldReader) -> TrustRef | str:
    """Returns the CA that a reference names, or why Envoy Gateway refuses it. Lists a CA that is not in the input."""
    group, kind, name, namespace = ref.text("group"), ref.text("kind"), ref.text("name"), ref.namespace
    if kind == "ClusterTrustBundle":
        return TrustRef(kind, "", name)
    if group or kind not in ("ConfigMap", "Secret"):
        return f"it refers to a CA of kind {kind[:60]}"
    data = inputs.data(kind, namespace, name)
    if data is None:
        absent = inputs.absence(kind, namespace, name)
        text, remedy = f"{kind} {namespace}/{name} {absent}; it is taken to have a ca.crt", "Add it to the input."
        ref.note(Category.TODO, "ca-not-in-the-input", text, None, remedy=remedy, severity=NoteSeverity.WARNING)
        return TrustRef(kind, namespace, name)
    only = next(iter(data)) if len(data) == 1 else ""
    key = next((candidate for candidate in ("ca.crt", "tls.crt") if data.get(candidate)), only)
    return TrustRef(kind, namespace, name, key) if key else f"{kind} {namespace}/{name} has neither ca.crt nor tls.crt"


def read_settings(inputs: Inputs, tls: FieldReader) -> BackendTLSSettings:
    """Reads the TLS settings of a Backend or an EnvoyProxy."""
    trust, problem = trust_of(inputs, tls)
    ref = tls.child("clientCertificateRef")
    name = ref.text("name")
    ref.ignore("kind", "group", "namespace")
    client = ObjectName(tls.namespace, name) if name else None
    skip = tls.boolean("insecureSkipVerify")
    tls.cannot("signatureAlgorithms", "signature algorithms cannot be chosen")
    return BackendTLSSettings(
        skip,
        tls.text("sni").lower(),
        tls.boolean("autoSNIFromEndpointHostname"),
        trust,
        problem,
        client,
        _options(tls),
    )


def _options(tls: FieldReader) -> TLSOptions:
    lowest, highest = tls.text("minVersion"), tls.text("maxVersion")
    if {lowest, highest} & {"1.0", "1.1"}:
        tls.note(Category.TIGHTENED, "tls-1.0-gone", "TLS below 1.2 was permitted, and is refused now", "minVersion")
    ciphers = _choosable(tls, "ciphers", CIPHER_SUITES, "ciphers", "some ciphers")
    curves = _choosable(tls, "ecdhCurves", _CURVES, "curves", "some curves")
    alpn = _choosable(tls, "alpnProtocols", ("h2", "http/1.1"), "alpn", "this ALPN")
    if tls.value.get("alpnProtocols") == []:
        tls.note(Category.CANNOT, "alpn", "this ALPN cannot be written; the new gateway uses its own", "alpnProtocols")
    minimum = lowest if lowest == "1.3" else None
    return TLSOptions(minimum, highest if highest in ("1.2", "1.3") else "1.3", ciphers, curves, alpn)


def _choosable(tls: FieldReader, key: str, supported: Sequence[str], reason: str, subject: str) -> tuple[str, ...]:
    """Returns the values of a field if a policy supports all of them, else none, so that the gateway's own apply."""
    values = tls.texts(key)
    if set(values) <= set(supported):
        return values
    tls.note(Category.CANNOT, reason, f"{subject} cannot be written; the new gateway uses its own", key)
    return ()


def by_policy(policy: PolicyValidation, options: TLSOptions) -> HopTLS:
    """Returns the TLS of a hop to a Service with a policy."""
    if policy.problem:
        why = f"{policy.label} is not accepted, because {policy.problem}; its routes answered 500"
        return HopTLS(OldLevel.BROKEN, why, None, "", policy.names, policy.hostname, options=options)
    uri = all(name.kind is NameKind.URI for name in policy.names)
    why = f"{policy.label} verifies it"
    level = OldLevel.URI if uri else OldLevel.NAME
    return HopTLS(level, why, None, "", policy.names, policy.hostname, policy.trust, options=options)


def by_backend(
    label: str, tls: BackendTLSSettings | None, policy: PolicyValidation | None, endpoint: str, hosts: tuple[str, ...]
) -> HopTLS | None:
    """Returns the TLS of a hop to a Backend. `endpoint`: its hostname, or ""; `hosts`: possible values of the Host header."""
    if tls is None:
        return by_policy(policy, TLSOptions()) if policy else None
    if policy is not None and not tls.skip:
        return msgspec.structs.replace(by_policy(policy, tls.options), client_certificate=tls.client)
    if policy is not None:
        why = f"{label} has insecureSkipVerify, which holds in spite of {policy.label}"
        policy_fields = (policy.names, policy.hostname, policy.trust)
        return HopTLS(OldLevel.UNVERIFIED, why, OldLevel.NAME, "skip-beats-policy", *policy_fields, tls.client, tls.options)
    sni = tls.sni or (endpoint if tls.from_endpoint else "")
    names = (Name(sni),) if sni else tuple(map(Name, hosts))
    hop_tls = HopTLS(
        OldLevel.UNVERIFIED, f"{label} has insecureSkipVerify", None, "", names, sni, tls.trust, tls.client, tls.options
    )
    return hop_tls if tls.skip else _verified(label, tls, hop_tls, hosts)


def _verified(label: str, tls: BackendTLSSettings, hop_tls: HopTLS, hosts: tuple[str, ...]) -> HopTLS:
    """Returns the TLS of a Backend that is verified by its own tls."""
    if tls.problem or not tls.trust:
        why = tls.problem or "its tls names no CA, and no policy does"
        text = f"{label}: {why}; its routes answered 500"
        return msgspec.structs.replace(hop_tls, level=OldLevel.BROKEN, why=text, trust=(MissingTrust(why),))
    if hop_tls.sni:
        return msgspec.structs.replace(hop_tls, level=OldLevel.NAME, why=f"{label} verifies the name {hop_tls.sni}")
    suffix = "" if hosts else ", which may be any"
    why = f"{label} has no sni, so the name is the request's Host{suffix}"
    return msgspec.structs.replace(hop_tls, level=OldLevel.HOST_NAME, why=why)
