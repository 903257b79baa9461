"""Runs an import from documents to objects and report. It is pure: the command reads files and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.plan.strength import Strength
from lasthop_import.decisions import Decisions
from lasthop_import.documents import Document, SourceText, Unparsable, mappings
from lasthop_import.ingresses import CLASS_UNKNOWN, claims, controllers_of
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.levels import HopOutcome, NewState, OldLevel
from lasthop_import.model import Backend, HostBackend, Imported, ImportedRule, ServiceBackend
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.order import contested
from lasthop_import.result import ImportResult, ReportRow
from lasthop_import.rule_hops import PortGroup, RuleHop, rule_hop_notes, rule_hops
from lasthop_import.settings import ImportSettings, Progress, System
from lasthop_import.unread import ROUTES, is_kind, unread_objects, weighed
from lasthop_import.writer.access import AccessLoss, access_loss, closed_copy, closed_rule, unreadable
from lasthop_import.writer.admission import admit_all
from lasthop_import.writer.backends import keep_referenced, referenced, write_backends
from lasthop_import.writer.client_certificates import choose_for_gateways
from lasthop_import.writer.client_validation import verifying
from lasthop_import.writer.gateways import place_listeners, write_gateways
from lasthop_import.writer.grants import write_grants
from lasthop_import.writer.objects import OutputFile, Written
from lasthop_import.writer.operator import external_hostnames, write_copies, write_profiles
from lasthop_import.writer.policies import PortVerdict, write_policies
from lasthop_import.writer.ports import shared_ports
from lasthop_import.writer.routes import auth_notes, write_routes
from lasthop_import.writer.split import split_conflicts
from lasthop_import.writer.stage import StageOutput, WriterContext
from lasthop_import.writer.traffic import write_budgets

NORMALIZED: Final = Note(
    Category.CHANGED,
    "paths-normalized",
    "paths are normalized before they are compared and passed on: // becomes /, and %2F and %5C get a 307 to the path without",
    remedy="For backends that need escaped slashes (GitLab, RabbitMQ), set escapedSlashes: KeepUnchanged in a GatewayProfile.",
    severity=NoteSeverity.INFO,
)
"""Applies to every system: the old gateways passed such paths on."""


class SystemsRead(msgspec.Struct, frozen=True):
    """The combined results of the systems' importers."""

    imported: Imported
    notes: tuple[Note, ...]
    missing: frozenset[Key]
    """Secrets and ConfigMaps that the input does not contain."""
    origins: Mapping[Document, str]
    """The system that has read each object."""


def read(
    systems: Sequence[System], documents: Sequence[Document], settings: ImportSettings, hidden: Mapping[Key, str] | None = None
) -> SystemsRead:
    """Reads the objects of every system. `hidden`: objects that the user may not read, with reasons."""
    imported, notes, missing = Imported(), list[Note](), set[Key]()
    origins: dict[Document, str] = {}
    controllers = controllers_of(documents)
    for system in systems:
        readable = [
            document for document in documents if len(systems) == 1 or _may_read(system, systems, document, controllers)
        ]
        inputs = Inputs(_only(readable, settings), hidden)
        part = system.read(inputs, settings)
        listeners = verifying(part.listeners)
        imported = imported.joined(msgspec.structs.replace(part, listeners=listeners.listeners))
        notes += listeners.notes
        notes += [weighed(system, settings, note) for note in (*inputs.notes, *inputs.unknown())]
        missing |= inputs.missing
        origins = dict.fromkeys(_seen(inputs), system.name) | origins
    notes += unread_objects(systems, [document for document in _only(documents, settings) if document not in origins])
    return SystemsRead(imported, tuple(notes), frozenset(missing), origins)


def _seen(inputs: Inputs) -> set[Document]:
    """Returns the objects that a system has read or has listed as skipped."""
    answers = (note for note in inputs.notes if note.category is Category.SKIPPED or note.reason == CLASS_UNKNOWN)
    listed = {note.source.document for note in answers if note.source}
    return listed | {document for document in inputs.documents if inputs.opened(document)}


def _may_read(system: System, systems: Sequence[System], document: Document, controllers: Mapping[str, str]) -> bool:
    """Returns whether a system may read an object: the first system that claims it. All systems may read an unclaimed object,
    except an Ingress, which is imported once or not at all."""
    owner = next(
        (candidate for candidate in systems if _is_of(candidate, document) and claims(candidate, document, controllers)), None
    )
    return owner is system if owner or document.kind == INGRESS.kind else True


def _is_of(system: System, document: Document) -> bool:
    return any(is_kind(kind, document) for kind in system.kinds)


def _only(documents: Sequence[Document], settings: ImportSettings) -> list[Document]:
    """Returns the chosen routes, and all objects that may decide about their backends and clients."""
    if not settings.only:
        return list(documents)
    return [d for d in documents if d.kind not in ROUTES or d.path in settings.only or d.namespace in settings.only]


class ResolvedHops(NamedTuple):
    """The hops with their ports, after conflicts were split."""

    context: WriterContext
    imported: Imported
    rule_hops: tuple[RuleHop, ...]
    split: StageOutput


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
    """Writes the objects and the report. Each stage is a function of the results of earlier ones."""
    inputs = Inputs([*documents, *_services(reading.imported)], hidden)
    context, imported, hops, split = _resolved(
        WriterContext(inputs, settings, decisions, reading.origins, systems[0]), reading
    )
    input_notes = (*reading.notes, *auth_notes(hops, settings), *unreadable(problems))
    lost = access_loss(imported, input_notes, documents, decisions, settings)
    placement = place_listeners(imported.listeners, settings)
    clients = choose_for_gateways(hops, placement.gateways, decisions)
    policies = write_policies(context, hops, clients, progress)
    waivers = policies.waivers
    gateways = write_gateways(
        context, placement, imported.rules, clients.chosen, policies.copied, profile=waivers and not settings.parent
    )
    rules = tuple(closed_rule(rule) if id(rule) in lost.rules else rule for rule in imported.rules)
    routes = write_routes(context, rules, hops, gateways.parents)
    stages = (
        policies,
        gateways,
        routes,
        write_backends(context, hops, policies.xbackend_tls, policies.plaintext_ports),
        write_budgets(context, hops),
        write_grants(context, policies.grants | gateways.grants | routes.grants),
        write_copies(
            context, [(source, _kept(source, document, lost)) for source, document in imported.objects], profile=waivers
        ),
        write_profiles(context, (*placement.listeners, *imported.gateways), waivers=waivers),
        split,
    )
    objects = [written for stage in stages for written in stage.objects]
    kept = keep_referenced(context, objects, hops, policies.plaintext_ports)
    admitted = admit_all((*objects, *kept.objects), kept.context, progress)
    # A rule may be written in several parts or places, refused in one and admitted in another.
    dropped = _hops((*admitted.dropped, *routes.refused)) - _hops(
        rule for written in admitted.written for rule in written.rules
    )
    notes = [
        *lost.notes,
        *rule_hop_notes(hops),
        *placement.notes,
        *clients.notes,
        *(note for stage in stages for note in stage.notes),
        *external_hostnames(hops, policies.verdicts),
        *_unused_decisions(hops, imported, decisions),
        *contested(imported.rules, reading.origins),
        *_misaimed(inputs),
        *((NORMALIZED,) if imported.rules or imported.objects else ()),
        *admitted.notes,
        *(() if settings.in_cluster else shared_ports(admitted.written)),
    ]
    return ImportResult(
        systems=tuple(systems),
        objects=admitted.written,
        admitted=admitted.objects,
        context=admitted.context,
        rows=tuple(
            sorted(
                (_row(rule_hop, _verdict(rule_hop, policies.verdicts, dropped, lost)) for rule_hop in hops),
                key=lambda row: row.order,
            )
        ),
        notes=tuple(sorted(dict.fromkeys(notes), key=lambda note: note.order)),
        questions=policies.questions,
        closed=lost.questions,
        entries=policies.entries,
        missing=_missing(inputs, hops, admitted.written, settings),
        problems=tuple(problems),
        inadmissible=admitted.inadmissible,
    )


def _missing(
    inputs: Inputs, hops: Sequence[RuleHop], written: Sequence[Written], settings: ImportSettings
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Returns the referenced objects that are neither written nor in the input."""
    backends = [rule_hop.hop.backend for rule_hop in hops]
    references = {("Service", backend.namespace, backend.name) for backend in backends if isinstance(backend, ServiceBackend)}
    references |= {reference for reference in referenced(written) if not reference[2].endswith("-todo")}
    references |= {("Gateway", *name) for route in written for name in _parents(route) if name != settings.parent}
    present = {(output.kind, output.key[0], output.key[2]) for output in written}
    present |= {(document.kind, document.namespace, document.bare_name) for document in inputs.documents}
    absent = sorted(references - present)
    return tuple(
        (kind, tuple(f"{place[1]}/{place[2]}" for place in places)) for kind, places in groupby(absent, itemgetter(0))
    )


def _parents(route: Written) -> Iterator[tuple[str, str]]:
    for parent in mappings(route.document.get("spec", {}).get("parentRefs")):
        if parent.get("kind", "Gateway") == "Gateway":
            yield parent.get("namespace", route.key[0]), parent["name"]


def _unused_decisions(hops: Sequence[RuleHop], imported: Imported, decisions: Decisions) -> Iterator[Note]:
    """Yields a note for each decision about a port or route that the input does not contain."""
    ports = {str(rule_hop.port) for rule_hop in hops}
    routes = {source.document.name for source in (*(rule.source for rule in imported.rules), *dict(imported.objects))}
    for name in (*(port for port in decisions.by_port if port not in ports), *sorted(decisions.opened.keys() - routes)):
        text = f"decisions.yaml has an entry for {name}, and no route of the input leads there"
        yield Note(Category.CHANGED, "decision-unused", text, remedy="Remove the entry, or correct its name.", target=name)


def _misaimed(inputs: Inputs) -> Iterator[Note]:
    """Yields a note for each policy that targets a missing port of a Service: it verified nothing."""
    for document in inputs.of(KINDS["BackendTLSPolicy"]):
        for number, target in enumerate(mappings(document.spec.get("targetRefs"))):
            section, service = target.get("sectionName"), str(target.get("name"))
            ports = inputs.ports(document.namespace, service) if target.get("kind") == "Service" and section else None
            if ports is not None and section not in {port.name for port in ports}:
                text = f"Service {document.namespace}/{service} has no port {section}, so the policy verified nothing"
                source = SourceRef(document, ("spec", "targetRefs", number, "sectionName"))
                yield Note(Category.BELIEVED, "port-missing", text, source, remedy="Correct the name of the port.")


def _services(imported: Imported) -> list[Document]:
    """Returns the Services that an importer writes itself: hops may lead there."""
    return [Document(document, SourceText("")) for _, document in imported.objects if document["kind"] == "Service"]


def _resolved(context: WriterContext, reading: SystemsRead) -> ResolvedHops:
    """Finds the port of each hop, and writes a second Service where a decision splits a conflict."""
    inputs = context.inputs
    hops = rule_hops(inputs, reading.imported, experimental=context.settings.experimental)
    split = split_conflicts(inputs, reading.imported, hops, context.decisions, context.settings)
    if not split.services:
        return ResolvedHops(context, split.imported, hops, StageOutput(notes=split.notes))
    inputs = Inputs([*inputs.documents, *split.services], inputs.hidden)
    context = msgspec.structs.replace(context, inputs=inputs)
    objects = context.objects()
    for service in split.services:
        objects.add(OutputFile.BACKENDS, service.value, (SourceRef(service),))
    output = StageOutput(objects=tuple(objects.objects), notes=split.notes)
    return ResolvedHops(
        context, split.imported, rule_hops(inputs, split.imported, experimental=context.settings.experimental), output
    )


def _hops(rules: Iterable[ImportedRule]) -> set[int]:
    """Returns the ids of the hops of these rules."""
    return {id(hop) for rule in rules for hop in rule.all_hops}


def _kept(source: SourceRef, document: Json, lost: AccessLoss) -> Json:
    closed = source.document in lost.documents and document["kind"].endswith("Route")
    return closed_copy(document) if closed else document


def _is_closed(rule_hop: RuleHop, lost: AccessLoss) -> bool:
    return id(rule_hop.hop) in lost.hops if rule_hop.rule else rule_hop.source.document in lost.documents


def _verdict(
    rule_hop: RuleHop, verdicts: Mapping[PortGroup, PortVerdict | None], dropped: set[int], lost: AccessLoss
) -> PortVerdict:
    if rule_hop.port is None or id(rule_hop.hop) in dropped:
        return PortVerdict(NewState(HopOutcome.DROPPED), detail=rule_hop.problem)
    written = verdicts.get(rule_hop.port.group) or PortVerdict(NewState(Strength.PLAINTEXT))
    if _is_closed(rule_hop, lost):
        return PortVerdict(NewState(HopOutcome.CLOSED), written.target)
    if rule_hop.hop.level is OldLevel.PASSTHROUGH:
        return PortVerdict(NewState(HopOutcome.PASSTHROUGH))
    return written


def _row(rule_hop: RuleHop, verdict: PortVerdict) -> ReportRow:
    port, level, tls, rule = rule_hop.port, rule_hop.hop.level, rule_hop.tls, rule_hop.rule
    return ReportRow(
        source=rule_hop.source,
        route=f"{rule.kind} {rule.namespace}/{rule.route}" if rule else "",
        backend=f"{port.kind} {port}" if port else _unresolved_backend(rule_hop.hop.backend),
        role=rule_hop.role,
        old=level,
        believed=(tls.believed if tls else None) or level,
        new=verdict.new,
        why=tls.why if tls else "",
        target=verdict.target,
        detail=verdict.detail,
    )


def _unresolved_backend(backend: Backend) -> str:
    kind = "Host" if isinstance(backend, HostBackend) else "Service"
    return f"{kind} {backend.namespace}/{backend.name}{'' if backend.port is None else f':{backend.port}'}"
