"""Writes the verification of each port: BackendTLSPolicies, the `tls` of XBackends, PinSets and VerificationWaivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.core import CRL_KEY
from lasthop.base.api.documents import Json
from lasthop.base.api.profiles import PREFIX
from lasthop.base.pki import parse
from lasthop.base.pki.parse import Certificate, Unreadable
from lasthop.base.text.printable import printable
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls_options import OPTIONS, TLSOptions
from lasthop.engine.resolve.backends.app_protocols import is_tls
from lasthop_import.decisions import CA, Decision, Question, default_expiry, entry
from lasthop_import.levels import HopOutcome, NewState, OldLevel, over_believed
from lasthop_import.model import HopTLS, HostBackend, Name, NameKind
from lasthop_import.names import shortened
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.rule_hops import HopPort, PortGroup, RuleHop, groups
from lasthop_import.settings import Progress
from lasthop_import.writer.client_certificates import ClientSecrets, GatewayClientCertificates, choose_for_port
from lasthop_import.writer.conflicts import ChosenTLS, difference_notes, merged, strictest, tls_hops_of
from lasthop_import.writer.objects import ObjectWriter, OutputFile
from lasthop_import.writer.stage import Grant, StageOutput, WriterContext
from lasthop_import.writer.trust import SYSTEM_REF, CopiedCAs, PolicyAnchors, TrustWriter
from lasthop_import.writer.verification import REASONS, PortVerification, as_before, as_decided, question, todo

API: Final = "gateway.networking.k8s.io/v1"
LASTHOP: Final = "lasthop.dev/v1alpha1"
LONGEST_REASON: Final = 1024


class PortVerdict(NamedTuple):
    """The new requirement of a port, for the rows of the report."""

    new: NewState
    target: str = ""
    """The object that sets it."""
    detail: str = ""


class PoliciesWritten(StageOutput, frozen=True, kw_only=True):
    verdicts: Mapping[PortGroup, PortVerdict | None]
    """None: the old gateway started TLS on no hop to the port."""
    questions: tuple[Question, ...]
    entries: tuple[str, ...]
    """Decisions from the shortcuts of the command line, for decisions.yaml."""
    xbackend_tls: Mapping[tuple[str, str], Json]
    """`tls` by namespace and name of an XBackend."""
    plaintext_ports: frozenset[tuple[str, str, int]]
    """Namespace, Service and number of ports with appProtocol TLS that stay plaintext by a decision."""
    waivers: bool
    """Some port has a VerificationWaiver."""
    copied: CopiedCAs


def write_policies(
    context: WriterContext, rule_hops: Iterable[RuleHop], gateways: GatewayClientCertificates, progress: Progress
) -> PoliciesWritten:
    """Writes the policy of each port; `gateways`: the client certificates that Gateways show."""
    objects = context.objects()
    trust = TrustWriter(context, objects)
    writer = PolicyWriter(context, objects, trust, gateways)
    by_port = groups(rule_hops)
    verdicts: dict[PortGroup, PortVerdict | None] = {}
    for group, port_hops in by_port.items():
        verdicts[group] = writer.write(port_hops)
        progress("Judging ports", len(verdicts), len(by_port))
    return PoliciesWritten(
        objects=tuple(objects.objects),
        notes=(*writer.notes, *trust.notes),
        grants=frozenset(writer.grants),
        verdicts=verdicts,
        questions=tuple(sorted(writer.questions)),
        entries=tuple(sorted(writer.entries)),
        xbackend_tls=writer.xbackend_tls,
        plaintext_ports=frozenset(writer.plaintext_ports),
        waivers=writer.waivers,
        copied=trust.copied,
    )


class PolicyWriter:
    def __init__(
        self, context: WriterContext, objects: ObjectWriter, trust: TrustWriter, gateways: GatewayClientCertificates
    ) -> None:
        self._inputs = context.inputs
        self._settings = context.settings
        self._decisions = context.decisions
        self._objects = objects
        self._trust = trust
        self._gateways = gateways
        self._secrets = ClientSecrets(context.inputs, context.settings, objects)
        self.notes: list[Note] = []
        self.questions: list[Question] = []
        self.entries: list[str] = []
        """Decisions from the shortcuts of the command line, for decisions.yaml."""
        self.xbackend_tls: dict[tuple[str, str], Json] = {}
        """`tls` by namespace and name of an XBackend."""
        self.grants: set[Grant] = set()
        """For client certificates of XBackends."""
        self.waivers = False
        self.plaintext_ports: set[tuple[str, str, int]] = set()
        """Namespace, Service and number of ports with appProtocol TLS that stay plaintext by a decision."""

    def write(self, rule_hops: Sequence[RuleHop]) -> PortVerdict | None:
        """Writes the policy of the port of these hops. Returns None if the old gateway started TLS on none of them."""
        tls_hops = tls_hops_of(rule_hops)
        if not tls_hops:
            self.notes += believed_notes(rule_hops)
            return None
        requirement = strictest(tls_hops)
        port = requirement.rule_hop.port
        assert port is not None
        source = requirement.rule_hop.source
        decision = self._decision(port, requirement)
        tls = merged(requirement.conflict) if requirement.conflict and decision and decision.merge else requirement.tls
        if decision and decision.plaintext and all(hop_tls.was_plaintext for _, hop_tls in tls_hops):
            return self._plaintext(port, decision, source)
        if tls.by_section and decision is None:
            return self._sections(port, tls, [rule_hop.source for rule_hop, _ in tls_hops])
        verification = self._verification(port, tls, requirement, decision, source)
        shown = choose_for_port(port, tls_hops, self._decisions, self._gateways)
        tls = msgspec.structs.replace(tls, client_certificate=shown.certificate)
        target = self._target(port, tls, verification, decision, [rule_hop.source for rule_hop, _ in tls_hops])
        self.notes += [msgspec.structs.replace(note, target=target) for note in shown.notes]
        self.notes += self._differences(rule_hops, requirement, tls, verification, target)
        if verification.open:
            self._ask(port, tls, verification, source, target)
        return PortVerdict(verification.new, target, verification.text)

    def _sections(self, port: HopPort, tls: HopTLS, sources: Sequence[SourceRef]) -> PortVerdict:
        """Copies the policies for named ports of a Service that is not in the input."""
        targets = []
        for section, section_tls in tls.by_section:
            named = port._replace(section=section)
            anchors = self._trust.anchors(section_tls.trust, port.namespace, port.name, sources[0], section_tls.revocation)
            verification = as_before(named, section_tls, anchors)
            targets.append(self._target(named, section_tls, verification, None, sources))
            if verification.open:
                self._note(
                    Category.TODO, verification.reason, verification.text, sources[0], targets[-1], "Correct it in the source."
                )
        sections = ", ".join(section or "all others" for section, _ in tls.by_section)
        text = f"{tls.why}; its policies are kept for the ports {sections}, and one of another name uses plaintext, as before"
        self._note(Category.TODO, REASONS[tls.level], text, sources[0], targets[0], "Add the Service to the input.")
        return PortVerdict(NewState(HopOutcome.KEPT), ", ".join(targets), tls.why)

    def _plaintext(self, port: HopPort, decision: Decision, source: SourceRef) -> PortVerdict:
        self._note(Category.CHANGED, "plaintext-decided", f"stays plaintext: {decision.reason}", source)
        if is_tls(port.app_protocol):
            self._correct(port, source)
        return PortVerdict(NewState(Strength.PLAINTEXT), "", f"decided: {decision.reason}")

    def _correct(self, port: HopPort, source: SourceRef) -> None:
        """Removes an appProtocol that requires TLS, because Lasthop sends no plaintext to such a port."""
        self.plaintext_ports.add((port.namespace, port.name, port.number))
        text = f"appProtocol {port.app_protocol} of {port} requires TLS, and Lasthop refuses such a port without a policy"
        remedy = "Remove appProtocol from the port, or write a plaintext protocol." if self._settings.in_cluster else ""
        category = Category.TODO if self._settings.in_cluster else Category.CHANGED
        done = "" if self._settings.in_cluster else "; it is left out of the Service"
        self._note(category, "app-protocol", f"{text}{done}", source, remedy=remedy)

    # --- requirements ------------------------------------------------------------------------------------------------

    def _decision(self, port: HopPort, requirement: ChosenTLS) -> Decision | None:
        """Returns the decision for a port from the file, or from the shortcuts of the command line."""
        decided = self._decisions.by_port.get(str(port))
        if decided or requirement.conflict:
            return decided
        level, settings = requirement.tls.level, self._settings
        expires = default_expiry(settings.now, settings.waiver_days)
        if level is OldLevel.CHAIN and settings.chain_only == "strict":
            return Decision(str(port), choice="strict")
        chosen = {OldLevel.UNVERIFIED: (settings.unverified, "All"), OldLevel.CHAIN: (settings.chain_only, "Names")}.get(level)
        if not chosen or chosen[0] != "waive":
            return None
        self.entries.append(entry(str(port), chosen[1], settings.reason, expires, f"{level} ({requirement.tls.why})"))
        return Decision(str(port), waive=chosen[1], reason=settings.reason, expires="" if expires == "never" else expires)

    def _verification(
        self, port: HopPort, tls: HopTLS, requirement: ChosenTLS, decision: Decision | None, source: SourceRef
    ) -> PortVerification:
        if decision and decision.plaintext:
            text = "the decision is plaintext, but some route used TLS to this port, and a decision cannot remove TLS"
            return todo(port, tls, "plaintext-refused", text)
        if requirement.conflict and not (decision and (decision.merge or decision.names_trust)):
            return todo(port, tls, "conflict", "routes require different CAs or names on this port")
        anchors = self._anchors(port, tls, decision, source)
        if decision is None or decision.only_merges:
            return as_before(port, tls, anchors)
        pinned = self._pinned(decision)
        if isinstance(pinned, str):
            return todo(port, tls, "pin-unreadable", pinned)
        return as_decided(port, tls, decision, anchors, pinned)

    def _anchors(self, port: HopPort, tls: HopTLS, decision: Decision | None, source: SourceRef) -> PolicyAnchors:
        """Returns the CAs of the decision, or else those of the source."""
        if decision is None or not decision.names_trust:
            return self._trust.anchors(tls.trust, port.namespace, port.name, source, tls.revocation)
        if tls.revocation and not self._has_lists(decision.ca, port.namespace):
            text = "the old gateway checked a revocation list; the decision for this port has none"
            self._note(Category.LOOSENED, "crl-dropped", text, source)
        return self._trust.decided(decision.ca, port.namespace, port.name, source) if decision.ca else PolicyAnchors()

    def _has_lists(self, ca: CA | None, namespace: str) -> bool:
        return ca is not None and CRL_KEY in (self._inputs.data(ca.kind, namespace, ca.name) or {})

    def _pinned(self, decision: Decision) -> tuple[Certificate, ...] | str:
        certificates: list[Certificate] = []
        for file in decision.certificates:
            parsed = parse.certificates(self._decisions.files.get(file, b""))
            if isinstance(parsed, Unreadable):
                return f"{file}, which the decision pins, {parsed.message}"
            certificates.append(parsed[0])
        return tuple(certificates)

    # --- objects -----------------------------------------------------------------------------------------------------

    def _target(
        self,
        port: HopPort,
        tls: HopTLS,
        verification: PortVerification,
        decision: Decision | None,
        sources: Sequence[SourceRef],
    ) -> str:
        """Writes the policy, or stores the `tls` of the XBackend. Returns the name of the object."""
        name = self._policy_name(port)
        validation: Json = {"hostname": verification.hostname}
        refs = self._refs(port, name, tls, verification, decision, sources)
        if verification.anchors.system and not verification.waives:
            validation["wellKnownCACertificates"] = "System"
        else:
            validation["caCertificateRefs"] = refs
        if verification.names and verification.waives != "Names":
            validation["subjectAltNames"] = [_san(name) for name in verification.names]
        comment = (
            f"TODO ({verification.reason}): {printable(verification.text)}",
            "It fails closed until decisions.yaml has an answer for this port.",
        )
        if port.kind == "XBackend":
            self.xbackend_tls[port.namespace, port.name] = self._xbackend_tls(port, tls, validation, sources[0])
            return f"XBackend {port.namespace}/{port.name}"
        target = {"group": "", "kind": "Service", "name": port.name, **({"sectionName": port.section} if port.section else {})}
        spec: Json = {"targetRefs": [target], "validation": validation}
        free = self._objects.free_name("BackendTLSPolicy", port.namespace, name)
        if options := written_options(
            self._with_certificate(tls, port, sources[0], f"BackendTLSPolicy {port.namespace}/{free}")
        ):
            spec["options"] = options
        metadata = {"name": free, "namespace": port.namespace}
        document = {"apiVersion": API, "kind": "BackendTLSPolicy", "metadata": metadata, "spec": spec}
        return self._objects.add(OutputFile.BACKEND_TLS, document, sources, comment if verification.open else ()).name

    def _with_certificate(self, tls: HopTLS, port: HopPort, source: SourceRef, target: str) -> TLSOptions:
        if tls.client_certificate is None:
            return tls.options
        name, notes = self._secrets.name(tls.client_certificate, port.namespace, source, target)
        self.notes += notes
        return msgspec.structs.replace(tls.options, client_certificate=name)

    def _policy_name(self, port: HopPort) -> str:
        ports = self._inputs.ports(port.namespace, port.name) or ()
        alone = port.known and len(ports) < 2
        return f"{port.name}-{port.section}" if port.section and not alone else port.name

    def _refs(
        self,
        port: HopPort,
        name: str,
        tls: HopTLS,
        verification: PortVerification,
        decision: Decision | None,
        sources: Sequence[SourceRef],
    ) -> list[Json]:
        if verification.open:
            return [{"group": "", "kind": "ConfigMap", "name": shortened(f"{name}-ca-todo")}]
        refs: list[Json] = [SYSTEM_REF] if verification.anchors.system else list(verification.anchors.refs)
        if verification.pinned or verification.hashes:
            refs = [self._pin_set(port, name, verification, sources)]
        if verification.waives and decision:
            refs.append(self._waiver(port, name, verification.waives, decision, tls, sources))
        return refs

    def _pin_set(self, port: HopPort, name: str, verification: PortVerification, sources: Sequence[SourceRef]) -> Json:
        spec: Json = {}
        if verification.hashes:
            spec["pins"] = [{"type": kind, "algorithm": "SHA256", "value": value} for kind, value in verification.hashes]
        if verification.pinned:
            spec["certificates"] = [certificate.pem.decode().strip() + "\n" for certificate in verification.pinned]
        return self._extension("PinSet", OutputFile.BACKEND_TLS, port, name, spec, sources)

    def _waiver(
        self, port: HopPort, name: str, waives: str, decision: Decision, tls: HopTLS, sources: Sequence[SourceRef]
    ) -> Json:
        self.waivers = True
        origin = f" (imported: {sources[0].object}, {tls.why})"
        spec: Json = {"waives": waives, "reason": printable(f"{decision.reason}{origin}")[:LONGEST_REASON]}
        if decision.owner:
            spec["owner"] = printable(decision.owner)[:253]
        if decision.expires:
            spec["expires"] = decision.expires
        return self._extension("VerificationWaiver", OutputFile.WAIVERS, port, name, spec, sources)

    def _extension(
        self, kind: str, file: OutputFile, port: HopPort, name: str, spec: Json, sources: Sequence[SourceRef]
    ) -> Json:
        free = self._objects.free_name(kind, port.namespace, name)
        metadata = {"name": free, "namespace": port.namespace}
        self._objects.add(file, {"apiVersion": LASTHOP, "kind": kind, "metadata": metadata, "spec": spec}, sources)
        return {"group": "lasthop.dev", "kind": kind, "name": free}

    def _xbackend_tls(self, port: HopPort, tls: HopTLS, validation: Json, source: SourceRef) -> Json:
        if options := written_options(tls.options):
            text = "an XBackend has no options, so these are not carried over"
            value = ", ".join(f"{key}={value}" for key, value in options.items())
            self.notes.append(Note(Category.CANNOT, "xbackend-options", text, source, value))
        if tls.client_certificate is None:
            return {"mode": "ServerOnly", "validation": validation}
        namespace, name = tls.client_certificate
        if namespace != port.namespace:
            self.grants.add(("XBackend", port.namespace, "Secret", namespace, name))
        reference = {"group": "", "kind": "Secret", "name": name, "namespace": namespace}
        return {"mode": "ClientAndServer", "clientCertificateRef": reference, "validation": validation}

    # --- notes and questions -----------------------------------------------------------------------------------------

    def _ask(self, port: HopPort, tls: HopTLS, verification: PortVerification, source: SourceRef, target: str) -> None:
        self.questions.append(question(port, tls, verification, source.object))
        remedy = f"Decide on {port} in decisions.yaml."
        if tls.level is OldLevel.UNVERIFIED:
            place = f"{verification.hostname}:{port.number}" if port.kind == "Service" else f"{port.name}:{port.number}"
            remedy += f" What the backend presents: lasthop pin {place}, from where it can be reached."
        self._note(Category.DECISION, verification.reason, verification.text, source, target, remedy)

    def _differences(
        self, rule_hops: Sequence[RuleHop], requirement: ChosenTLS, tls: HopTLS, verification: PortVerification, target: str
    ) -> list[Note]:
        decided = str(requirement.rule_hop.port) in self._decisions.by_port
        notes = [
            *difference_notes(rule_hops, requirement, target),
            *believed_notes(rule_hops, target),
        ]
        if not verification.open:
            outside = isinstance(requirement.rule_hop.hop.backend, HostBackend)
            notes += _sni_notes(tls, verification, requirement.rule_hop.source, target, outside=outside)
            notes += _name_notes(tls, verification, requirement.rule_hop.source, target)
        accepted = [msgspec.structs.replace(note, severity=NoteSeverity.WARNING) for note in notes]
        return accepted if decided else notes

    def _note(self, category: Category, reason: str, text: str, source: SourceRef, target: str = "", remedy: str = "") -> None:
        self.notes.append(Note(category, reason, text, source, remedy=remedy, target=target))


def _sni_notes(
    tls: HopTLS, verification: PortVerification, source: SourceRef, target: str, *, outside: bool
) -> Iterator[Note]:
    if tls.level is OldLevel.HOST_NAME or (tls.sni_of_host and not tls.sni):
        text = f"SNI was the request's Host; it is always {verification.hostname} now"
        yield Note(Category.CHANGED, "sni-fixed", text, source, target=target)
    elif not tls.sni and not outside:
        text = f"no SNI was sent; it is {verification.hostname} now"
        yield Note(Category.CHANGED, "sni-added", text, source, target=target)


def _name_notes(tls: HopTLS, verification: PortVerification, source: SourceRef, target: str) -> Iterator[Note]:
    if verification.new.strength is Strength.VERIFIED and tls.level in (OldLevel.CHAIN, OldLevel.UNVERIFIED):
        text = f"a certificate without the name {verification.hostname} is refused now"
        yield Note(Category.TIGHTENED, "names-now-checked", text, source, target=target)
    elif verification.new.by == "name" and tls.cn_fallback:
        text = "a certificate that has its name only in the CN was accepted, and is refused now"
        remedy = "If it has no subjectAltName, pin it: lasthop pin."
        yield Note(Category.TIGHTENED, "cn-only-risk", text, source, remedy=remedy, target=target)
    if verification.new.strength is Strength.PINNED_ONLY and tls.level is OldLevel.CHAIN:
        text = "the configured CA is a single certificate, which is pinned; its dates are no longer checked"
        yield Note(Category.LOOSENED, "leaf-as-ca", text, source, target=target)


def believed_notes(rule_hops: Sequence[RuleHop], target: str = "") -> list[Note]:
    """Returns notes about configuration that suggests more verification than the old gateway performed."""
    return [
        Note(
            Category.BELIEVED,
            rule_hop.tls.believed_reason or "not-as-it-seems",
            f"looks like {rule_hop.tls.believed}, but was {rule_hop.tls.level}: {rule_hop.tls.why}",
            rule_hop.source,
            target=target,
        )
        for rule_hop in rule_hops
        if rule_hop.tls and over_believed(rule_hop.tls.level, rule_hop.tls.believed)
    ]


def written_options(options: TLSOptions) -> Json:
    """Returns the options of a policy that differ from the defaults."""
    defaults = msgspec.structs.asdict(TLSOptions())
    written: Json = {}
    for option in OPTIONS:
        value = getattr(options, option.field)
        if value is not None and value != defaults[option.field]:
            written[f"{PREFIX}{option.name}"] = value if isinstance(value, str) else ",".join(value)
    return written


def _san(name: Name) -> Json:
    return {"type": "URI", "uri": name.value} if name.kind is NameKind.URI else {"type": "Hostname", "hostname": name.value}
