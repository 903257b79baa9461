"""Checks and audits the objects of an import, as `lasthop check` and `lasthop audit` do, before a user applies them."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.core import Namespace
from lasthop.base.api.meta import Key, ObjectMeta, StringMap
from lasthop.engine.dry_run import serve_all
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.outputs.findings.root_causes import RootCause, root_causes
from lasthop.engine.plan import reasons
from lasthop.engine.plan.finding import Finding, Severity
from lasthop.engine.plan.reasons import entry_of
from lasthop.engine.plan.tls import SystemStore
from lasthop.engine.resolve.settings import IN_CLUSTER, SYSTEM_STORE, Settings
from lasthop_import.notes import Category, Note
from lasthop_import.result import ImportResult
from lasthop_import.settings import ImportSettings

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
ON_A_HOST: Final = Settings()


class ImportCheck(NamedTuple):
    errors: tuple[RootCause, ...]
    hops: tuple[HopReport, ...]


def serving_mode(settings: ImportSettings) -> Settings:
    """Returns the mode in which the objects will be served: in a cluster if they come from one, else on a host."""
    return IN_CLUSTER if settings.in_cluster else ON_A_HOST


def check(result: ImportResult, now: float, mode: Settings = ON_A_HOST) -> ImportCheck:
    """Returns the findings of the objects, and the verification of each hop."""
    engine = engine_of(result, now, mode)
    return ImportCheck(
        tuple(root for root in root_causes(engine.findings(), {}) if root.finding.severity is Severity.ERROR),
        tuple(engine.hops()),
    )


def with_check(result: ImportResult, settings: ImportSettings) -> ImportResult:
    """Adds those findings of `lasthop check` that the report lacks."""
    reported = {note.target for note in result.notes if note.category in (Category.DECISION, Category.TODO)}
    notes = list(result.notes)
    for root in check(result, settings.now, serving_mode(settings)).errors:
        finding = root.finding
        if finding.missing or str(finding.object) in reported or _suppressed(finding):
            continue
        text = f"lasthop check: {finding.field}: {finding.message}" if finding.field else f"lasthop check: {finding.message}"
        notes.append(Note(Category.TODO, "check", text, None, "", finding.remedy, str(finding.object)))
    return result.with_notes(notes)


def _suppressed(finding: Finding) -> bool:
    """Returns whether a finding follows from an input without EndpointSlices, or is in the report already."""
    return entry_of(finding.reason).passes or finding.reason == reasons.WAIVER_NOT_PERMITTED


def engine_of(result: ImportResult, now: float, mode: Settings = ON_A_HOST) -> Engine:
    """Returns an engine with the objects, and with the input's objects that they refer to."""
    engine = Engine(mode, now=now)
    SYSTEM_STORE.set(engine.graph, SystemStore("/etc/ssl/system.pem", "unknown"))
    objects = {admitted.key: admitted.object for admitted in (*result.context, *result.admitted)}
    for name in {key.namespace for key in objects if key.namespace}:
        labels = StringMap.of({NAMESPACE_LABEL: name})
        objects.setdefault(Key("Namespace", "", name), Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    engine.apply(objects)
    serve_all(engine, judge=True)
    return engine
