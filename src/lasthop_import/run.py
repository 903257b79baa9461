"""Runs an import: systems read, hops are judged, objects are written and admitted. Pure: the command does the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import PREFIX
from lasthop_import.decisions import Decisions
from lasthop_import.documents import Document, SourceText, Unparsable
from lasthop_import.ingresses import claims, controllers_of
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.levels import Level, NewLevel
from lasthop_import.model import HostBackend, Imported, ImportedRule
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.result import ImportResult, ReportRow
from lasthop_import.rule_hops import RuleHop, groups, rule_hop_notes, rule_hops
from lasthop_import.settings import ImportSettings, System
from lasthop_import.writer.admission import INADMISSIBLE, Admission
from lasthop_import.writer.backends import keep, write_backends
from lasthop_import.writer.client_certificates import of_gateways
from lasthop_import.writer.gateways import GatewayWriter
from lasthop_import.writer.grants import write_grants
from lasthop_import.writer.objects import ObjectWriter, OutputFile, Written
from lasthop_import.writer.operator import external_hostnames, profile, with_profile
from lasthop_import.writer.policies import PolicyWriter, PortVerdict
from lasthop_import.writer.ports import shared_ports
from lasthop_import.writer.routes import RouteWriter, hop_ports
from lasthop_import.writer.split import split_conflicts
from lasthop_import.writer.traffic import write_budgets
from lasthop_import.writer.trust import TrustWriter

READ_ALONG: Final = ("Service", "EndpointSlice", "IngressClass", "ConfigMap", "Secret", "Namespace", "ClusterTrustBundle")
Progress = Callable[[str, int, int], None]
"""Told what is being done, and how much of it."""


class SystemsRead(msgspec.Struct, frozen=True):
    """What the systems have read."""

    imported: Imported
    notes: tuple[Note, ...]
    wanted: frozenset[Key]
    """Secrets and ConfigMaps that the input does not have."""
    origins: Mapping[Document, str]
    """The system of each object that was opened."""


def read(
    systems: Sequence[System], documents: Sequence[Document], settings: ImportSettings, hidden: Mapping[Key, str] | None = None
) -> SystemsRead:
    """Lets every system read its objects. `hidden`: what may not be read, and why."""
    imported, notes, wanted = Imported(), list[Note](), set[Key]()
    origins: dict[Document, str] = {}
    opened: set[Document] = set()
    controllers = controllers_of(documents)
    for system in systems:
        own = documents
        if len(systems) > 1:
            own = [each for each in documents if _may_read(system, systems, each, controllers)]
        inputs = Inputs(_only(own, settings), hidden)
        imported = imported.joined(system.read(inputs, settings))
        notes += [*inputs.notes, *inputs.unknown()]
        wanted |= inputs.wanted
        seen = {each for each in inputs.documents if inputs.opened(each)}
        seen |= {note.source.document for note in inputs.notes if note.source and note.category is Category.SKIPPED}
        origins |= dict.fromkeys((each for each in seen if each not in origins), system.name)
        opened |= seen
    notes += _left(systems, [each for each in documents if each not in opened])
    return SystemsRead(imported, tuple(notes), frozenset(wanted), origins)


def _may_read(system: System, systems: Sequence[System], document: Document, controllers: Mapping[str, str]) -> bool:
    """Returns whether an object is a system's to read: it belongs to the one that claims it; what nobody claims, all may look
    at."""
    owner = next((each for each in systems if _is_of(each, document) and claims(each, document, controllers)), None)
    return owner is None or owner is system


def _is_of(system: System, document: Document) -> bool:
    return any(document.kind == kind.kind and document.group == kind.group for kind in system.kinds)


def _only(documents: Sequence[Document], settings: ImportSettings) -> list[Document]:
    if not settings.only:
        return list(documents)
    return [d for d in documents if d.kind in READ_ALONG or d.path in settings.only or d.namespace in settings.only]


def _left(systems: Sequence[System], documents: Iterable[Document]) -> list[Note]:
    """Lists the objects that no system has looked at: those of another version, and the kinds of all others."""
    notes: list[Note] = []
    others: dict[str, list[Document]] = {}
    for document in documents:
        kinds = [kind for system in systems for kind in system.kinds if _same(kind.kind, kind.group, document)]
        versions = [version for kind in kinds for version in kind.api_versions]
        if kinds and document.api_version not in versions:
            text = f"{document.api_version} is not read; convert it to {versions[0]}"
            notes.append(
                Note(Category.CANNOT, "other-version", text, SourceRef(document, ("apiVersion",)), severity=NoteSeverity.HIGH)
            )
        elif not kinds and document.kind == INGRESS.kind and document.group == "extensions":
            text = f"{document.api_version} is no longer served by any Kubernetes; convert it to networking.k8s.io/v1"
            notes.append(
                Note(Category.CANNOT, "other-version", text, SourceRef(document, ("apiVersion",)), severity=NoteSeverity.HIGH)
            )
        elif document.kind not in READ_ALONG:
            others.setdefault(document.kind, []).append(document)
    for kind, found in sorted(others.items()):
        names = ", ".join(sorted(each.path for each in found)[:3])
        text = f"{len(found)} of kind {kind} are not read: {names}{', ...' if len(found) > 3 else ''}"
        notes.append(Note(Category.SKIPPED, "other-kind", text, SourceRef(min(found, key=lambda each: each.path))))
    return notes


def _same(kind: str, group: str, document: Document) -> bool:
    return document.kind == kind and document.group == group


def write(
    systems: Sequence[str],
    reading: SystemsRead,
    documents: Sequence[Document],
    settings: ImportSettings,
    decisions: Decisions,
    problems: Sequence[Unparsable] = (),
    hidden: Mapping[Key, str] | None = None,
    progress: Progress = lambda *_: None,
) -> ImportResult:
    """Writes what was read as objects, and the report about them."""
    documents = [*documents, *_services(reading.imported)]
    inputs = Inputs(documents, hidden)
    found = rule_hops(inputs, reading.imported)
    split = split_conflicts(inputs, reading.imported, found, decisions, settings)
    imported = split.imported
    if split.services:
        inputs = Inputs([*documents, *split.services], hidden)
        found = rule_hops(inputs, imported)

    def origin(source: SourceRef) -> str:
        document = source.document
        return f"{reading.origins.get(document, systems[0])}/{document.kind}/{document.path}"

    taken = [(d.kind, d.namespace, d.bare_name) for d in documents if d.kind in ("ConfigMap", "Secret")]
    objects = ObjectWriter(taken, origin)
    trust = TrustWriter(inputs, settings, decisions, objects)
    gateways = GatewayWriter(inputs, settings, objects, trust)
    placed = gateways.place(imported.listeners)
    clients = of_gateways(found, gateways.gateways, decisions)
    policies = PolicyWriter(inputs, settings, decisions, objects, trust, clients)
    verdicts: dict[tuple[str, str, str, int], PortVerdict | None] = {}
    by_port = groups(found)
    for group, each in by_port.items():
        verdicts[group] = policies.write(each)
        progress("Judging ports", len(verdicts), len(by_port))
    gateways.write(placed, imported.rules, clients.chosen, policies.waivers and not settings.parent)
    routes = RouteWriter(objects, hop_ports(found), settings.experimental)
    routes.write(imported.rules, gateways.parents)
    write_backends(objects, found, policies.xbackend_tls, policies.plaintext_ports)
    budget_notes = write_budgets(objects, found, experimental=settings.experimental)
    write_grants(objects, {*gateways.grants, *routes.grants, *policies.grants})
    for source, document in imported.objects:
        if document["kind"] == "Gateway" and policies.waivers:
            document = with_profile(document, settings)
        objects.add(FILES.get(document["kind"], OutputFile.ROUTES), document, (source,))
    operator_notes = []
    for namespace in (
        sorted({each.namespace for each in (*placed, *imported.gateways)}) if policies.waivers and not settings.parent else ()
    ):
        objects.add(OutputFile.OPERATOR, *profile(settings, namespace))
    if policies.waivers and not settings.allow_waivers:
        text = (
            "waivers are in force once the operator allows them in the Gateway's GatewayProfile; until then they fail closed"
        )
        operator_notes.append(Note(Category.TODO, "waivers-not-allowed", text, severity=NoteSeverity.WARNING))
    for alias in split.services:
        objects.add(OutputFile.BACKENDS, alias.value, (SourceRef(alias),))
    context = ObjectWriter((), origin)
    referenced = _referenced(objects.objects)
    secrets = {each for each in referenced if each[0] == "Secret"}
    written_already = {(each.kind, each.key[0], each.key[2]) for each in objects.objects}
    others = referenced - secrets - written_already
    keep(context if settings.in_cluster else objects, inputs, found, others, policies.plaintext_ports)
    keep(objects if settings.with_secrets and not settings.in_cluster else context, inputs, (), secrets - written_already)

    admission = Admission()
    written: list[Written] = []
    unique = _unique(objects.objects)
    for number, candidate in enumerate(unique, 1):
        if one := admission.admit(candidate):
            written.append(one)
        progress("Validating objects", number, len(unique))
    written.sort(key=lambda each: each.key)
    admission_notes = tuple(admission.notes)
    known = dict(admission.objects)
    for candidate in _unique(context.objects):
        admission.admit(candidate)
    # A rule that is written in several parts, or in several places, may be refused in one and stand in another.
    dropped = _hops((*admission.dropped, *routes.refused)) - _hops(rule for each in written for rule in each.rules)
    rows = [_row(rule_hop, verdicts, dropped) for rule_hop in found]
    notes = [
        *reading.notes,
        *rule_hop_notes(found),
        *split.notes,
        *policies.notes,
        *trust.notes,
        *gateways.notes,
        *clients.notes,
        *operator_notes,
        *external_hostnames(found, verdicts),
        *routes.notes,
        *budget_notes,
        *admission_notes,
        *(() if settings.in_cluster else shared_ports(written)),
    ]
    return ImportResult(
        systems=tuple(systems),
        objects=tuple(written),
        admitted=tuple(known.values()),
        context=tuple(each for key, each in admission.objects.items() if key not in known),
        rows=tuple(sorted(rows, key=lambda row: row.order)),
        notes=tuple(sorted(dict.fromkeys(notes), key=lambda note: note.order)),
        questions=tuple(sorted(policies.questions)),
        entries=tuple(sorted(policies.entries)),
        problems=tuple(problems),
        inadmissible=sum(note.reason == INADMISSIBLE for note in admission_notes),
    )


FILES: Final = {
    "GatewayClass": OutputFile.GATEWAY,
    "Gateway": OutputFile.GATEWAY,
    "ListenerSet": OutputFile.GATEWAY,
    "Service": OutputFile.BACKENDS,
}
REFERENCES: Final = ("certificateRefs", "clientCertificateRef", "caCertificateRefs")
CLIENT_CERTIFICATE: Final = f"{PREFIX}client-certificate"


def _services(imported: Imported) -> list[Document]:
    """Returns the Services that an importer writes itself: hops may lead there."""
    return [Document(each, SourceText("")) for _, each in imported.objects if each["kind"] == "Service"]


def _unique(objects: Iterable[Written]) -> list[Written]:
    return list({each.key: each for each in reversed(list(objects))}.values())[::-1]


def _hops(rules: Iterable[ImportedRule]) -> set[int]:
    """Returns the ids of the hops of these rules."""
    return {id(hop) for rule in rules for hop in rule.all_hops}


def _row(rule_hop: RuleHop, verdicts: Mapping[tuple[str, str, str, int], PortVerdict | None], dropped: set[int]) -> ReportRow:
    verdict = verdicts.get(rule_hop.port.group) if rule_hop.port else None
    level = rule_hop.hop.level
    new, target, detail = NewLevel.PLAINTEXT, "", ""
    if rule_hop.port is None or id(rule_hop.hop) in dropped:
        new, detail = NewLevel.DROPPED, rule_hop.problem
    elif level is Level.PASSTHROUGH:
        new = NewLevel.PASSTHROUGH
    elif verdict is not None:
        new, target, detail = verdict
    kind = rule_hop.port.kind if rule_hop.port else "Host" if isinstance(rule_hop.hop.backend, HostBackend) else "Service"
    port = (
        str(rule_hop.port)
        if rule_hop.port
        else f"{rule_hop.hop.backend.namespace}/{rule_hop.hop.backend.name}:{rule_hop.hop.backend.port}"
    )
    return ReportRow(
        source=rule_hop.source,
        route=f"{rule_hop.rule.kind} {rule_hop.rule.namespace}/{rule_hop.rule.route}" if rule_hop.rule else "",
        backend=f"{kind} {port}",
        role=rule_hop.role,
        old=level,
        believed=(rule_hop.tls.believed if rule_hop.tls else None) or level,
        new=new,
        why=rule_hop.tls.why if rule_hop.tls else "",
        target=target,
        detail=detail,
    )


def _referenced(objects: Iterable[Written]) -> set[tuple[str, str, str]]:
    """Returns the ConfigMaps and Secrets that objects refer to."""
    found: set[tuple[str, str, str]] = set()

    def walk(value: object, namespace: str, inside: str) -> None:
        if isinstance(value, dict):
            kind = value.get("kind", "Secret")
            if inside in REFERENCES and kind in ("ConfigMap", "Secret"):
                found.add((kind, value.get("namespace", namespace), value["name"]))
            if isinstance(value.get(CLIENT_CERTIFICATE), str):
                found.add(("Secret", namespace, value[CLIENT_CERTIFICATE]))
            for key, below in value.items():
                walk(below, namespace, key)
        elif isinstance(value, list):
            for below in value:
                walk(below, namespace, inside)

    for written in objects:
        if written.kind in ("Gateway", "ListenerSet", "BackendTLSPolicy", "XBackend", "PinSet"):
            walk(written.document.get("spec"), written.key[0], "")
    return found
