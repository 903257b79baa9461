"""Checks the promises of every import, of any system: facts that a reviewer could check by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from lasthop.base.api.meta import Key
from lasthop.edge.admission.chain import admit
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.verdict import FAILING
from lasthop.engine.resolve.settings import Settings
from lasthop_import.check import ON_A_HOST, ImportCheck, check
from lasthop_import.command import report as import_report
from lasthop_import.decisions import Decision, Decisions, appended
from lasthop_import.documents import Document, SourceText, mappings
from lasthop_import.inputs import Inputs
from lasthop_import.levels import HopOutcome, NewState, OldLevel
from lasthop_import.model import SystemTrust
from lasthop_import.notes import Category
from lasthop_import.registry import SYSTEMS
from lasthop_import.unread import READ_ALONG
from lasthop_import.writer.access import NO_BACKEND
from lasthop_import.writer.text import render
from tests.importers.harness import Outcome, run_documents

ADDRESSES = Settings(host_network=False)
NAMING = ("name", "host", "service", "serviceName")
"""Fields in which the systems name a Service."""
NO_HOPS = {"upstreams", "listeners", "targetRefs", "defaultBackend"}
"""Fields that describe a Service to which no request need lead."""
PLAIN = (OldLevel.PLAINTEXT, OldLevel.PASSTHROUGH)


def assert_promises(system: str, outcome: Outcome) -> None:
    """Checks everything that holds without a second import."""
    every_hop_is_a_row(outcome)
    every_service_that_is_named_is_a_row_or_a_note(outcome)
    every_policy_without_a_target_is_noted(outcome)
    every_rule_is_written_or_refused(outcome)
    every_tls_hop_has_a_policy(outcome)
    no_waiver_without_a_decision(outcome)
    no_system_trust_of_its_own(outcome)
    no_private_key(outcome)
    every_object_is_admitted(outcome)
    every_field_is_accounted_for(system, outcome)
    names_of_objects_are_unique(outcome)


def every_hop_is_a_row(outcome: Outcome) -> None:
    imported = outcome.reading.imported
    hops = sum(len(rule.all_hops) for rule in imported.rules) + len(imported.hops)
    assert len(outcome.result.rows) == hops == sum(outcome.result.summary.values())


def every_service_that_is_named_is_a_row_or_a_note(outcome: Outcome) -> None:
    """Looks for the Services in the text of the objects, without the importers: where one is named, a row leads there or a
    note is about the object."""
    services = {each.bare_name for each in outcome.documents if each.kind == "Service"}
    leads = {row.backend.partition("/")[2].rpartition(":")[0] for row in outcome.result.rows}
    about = {note.source.document for note in outcome.result.notes if note.source}
    for document in outcome.documents:
        if document.kind in READ_ALONG or document in about:
            continue
        for path in leaves(document.spec):
            if path and path[-1] in NAMING and not {*path} & NO_HOPS:
                value = str(value_at(document.spec, path))
                name = (value.partition("://")[2] or value).partition(".")[0].partition(":")[0]
                assert name not in services or any(each.startswith(name) for each in leads), (document, path)


def every_policy_without_a_target_is_noted(outcome: Outcome) -> None:
    """Checks that a policy whose targets are not in the input has a note of its own, or one of its kind."""
    present = {(each.kind, each.namespace, each.bare_name) for each in outcome.documents}
    about = {note.source.document for note in outcome.result.notes if note.source}
    listed = {note.source.document.kind for note in outcome.result.notes if note.source and note.reason == "other-kind"}
    for document in outcome.documents:
        targets = [*mappings(document.spec.get("targetRefs")), *mappings([document.spec.get("targetRef")])]
        named = {(each.get("kind"), document.namespace, each.get("name")) for each in targets}
        if targets and document not in about and document.kind not in listed:
            kept = any(document.bare_name in each.why or each.new.how is HopOutcome.KEPT for each in outcome.result.rows)
            assert named & present or kept, document


def value_at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def every_rule_is_written_or_refused(outcome: Outcome) -> None:
    written = {rule.source for each in outcome.result.objects for rule in each.rules}
    refused = {note.source for note in outcome.result.notes if note.reason in ("rule-refused", "inadmissible")}
    assert {rule.source for rule in outcome.reading.imported.rules} <= written | refused


def every_tls_hop_has_a_policy(outcome: Outcome) -> None:
    written = outcome.result.objects
    targets = {
        (each.key[0], ref["name"], ref.get("sectionName", ""))
        for each in written
        if each.kind == "BackendTLSPolicy"
        for ref in each.document["spec"]["targetRefs"]
    }
    guarded = {each.key[::2] for each in written if each.kind == "XBackend" and each.document["spec"].get("tls")}
    services = [Document(each.document, SourceText("")) for each in written if each.kind == "Service"]
    inputs = Inputs([*outcome.documents, *services])
    for row in outcome.result.rows:
        if row.old in PLAIN or row.new.how in (HopOutcome.DROPPED, HopOutcome.CLOSED) or "decided" in row.detail:
            continue
        kind, _, place = row.backend.partition(" ")
        path, _, number = place.rpartition(":")
        namespace, _, name = path.partition("/")
        if kind == "XBackend":
            assert (namespace, name) in guarded, row
            continue
        port = inputs.port(namespace, name, int(number))
        section = port.name if port else ""
        kept = row.new.how is HopOutcome.KEPT and any(each[:2] == (namespace, name) for each in targets)
        assert kept or {(namespace, name, ""), (namespace, name, section)} & targets, row
        assert row.new.strength is not Strength.PLAINTEXT, row


def no_waiver_without_a_decision(outcome: Outcome) -> None:
    waivers = [each for each in outcome.result.objects if each.kind == "VerificationWaiver"]
    decided = [each for each in outcome.decisions.by_port.values() if each.waive]
    by_option = "waive" in (outcome.settings.unverified, outcome.settings.chain_only)
    assert len(waivers) <= len(decided) or by_option
    assert all(each.document["spec"]["reason"].strip() for each in waivers)


def no_system_trust_of_its_own(outcome: Outcome) -> None:
    imported = outcome.reading.imported
    hops = [*(hop for rule in imported.rules for hop in rule.all_hops), *imported.hops]
    trusted = any(hop.tls and any(isinstance(each, SystemTrust) for each in hop.tls.trust) for hop in hops)
    decided = any(each.ca and each.ca.kind == "system" for each in outcome.decisions.by_port.values())
    copied = any("wellKnownCACertificates" in str(document) for _, document in imported.objects)
    text = render(outcome.result.objects)
    assert trusted or decided or copied or "System" not in text.split()


def no_private_key(outcome: Outcome) -> None:
    report = import_report.ImportReport.of(outcome.result, 0)
    shown = [import_report.text(report), import_report.as_json(report), import_report.markdown(report)]
    assert not any("PRIVATE KEY-----" in each for each in (*shown, import_report.as_sarif(report)))
    objects = render(outcome.result.objects)
    assert outcome.settings.with_secrets or ("PRIVATE KEY-----" not in objects and "tls.key" not in objects)


def every_object_is_admitted(outcome: Outcome) -> None:
    assert outcome.result.inadmissible == 0, [each.text for each in outcome.result.notes if each.reason == "inadmissible"]
    for each in outcome.result.objects:
        assert admit(each.document)[1] == [], each.name


def names_of_objects_are_unique(outcome: Outcome) -> None:
    keys = [each.key for each in outcome.result.objects]
    assert len(set(keys)) == len(keys)


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields the path of every value that is no mapping and no list, and of empty ones."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not inside:
        yield path
    for step, below in inside:
        yield from leaves(below, (*path, step))


def every_field_is_accounted_for(system: str, outcome: Outcome) -> None:
    """Reads the input once more and compares what was read with all that there is."""
    for one in [SYSTEMS[system]] if system in SYSTEMS else SYSTEMS.values():
        inputs = Inputs(outcome.documents)
        one.read(inputs, outcome.settings)
        listed = {(note.source.document, note.source.path) for note in inputs.unknown() if note.source}
        for document in filter(inputs.opened, inputs.documents):
            account = inputs.open(document).account
            covered = {*account.read, *(path for each, path in listed if each is document)}
            content = {
                key: value for key, value in document.value.items() if key not in ("apiVersion", "kind", "metadata", "status")
            }
            annotations = document.metadata.get("annotations") or {}
            paths = [*leaves(content), *leaves(annotations, ("metadata", "annotations"))] if annotations else leaves(content)
            for path in paths:
                assert any(path[:length] in covered for length in range(len(path) + 1)), (document, path)


# --- with a second import --------------------------------------------------------------------------------------------


def report_of(outcome: Outcome) -> list[tuple[Any, ...]]:
    """Returns the report without lines, which move with their documents."""
    return [(*each.order, each.value, each.remedy) for each in outcome.result.notes]


def assert_repeatable(system: str, outcome: Outcome, seed: int) -> None:
    """Checks that the same documents in any order give the same bytes."""
    shuffled = list(outcome.documents)
    random.Random(seed).shuffle(shuffled)
    again = run_documents(system, tuple(shuffled), outcome.settings, outcome.decisions, outcome.result.problems)
    assert render(again.result.objects) == render(outcome.result.objects)
    assert report_of(again) == report_of(outcome)
    assert [row.order for row in again.result.rows] == [row.order for row in outcome.result.rows]


def assert_decisions_close_all_questions(system: str, outcome: Outcome) -> None:
    """Answers every question with a waiver: nothing is open then, and a further run changes nothing."""
    answers = {
        each.port: Decision(each.port, waive="All", reason="for the test", expires="2027-01-31T00:00:00Z")
        for each in outcome.result.questions
    }
    decisions = Decisions(answers, {each.port: "for the test" for each in outcome.result.closed})
    wanted = msgspec.structs.replace(outcome.settings, allow_waivers=True)
    second = run_documents(system, outcome.documents, wanted, decisions)
    assert second.result.questions == second.result.closed == ()
    assert not any(row.new.todo for row in second.result.rows)
    third = run_documents(system, outcome.documents, wanted, decisions)
    assert render(third.result.objects) == render(second.result.objects)
    assert_promises(system, second)
    text = appended("", outcome.result.questions, (), wanted.now, 90)
    assert appended(text, outcome.result.questions, (), wanted.now + 86400 * 40, 90) == text
    assert_audit_agrees(second)


def shared_ports(outcome: Outcome) -> set[str]:
    """Returns the Gateways whose ports conflict on one host, from the report."""
    return {note.target for note in outcome.result.notes if note.reason == "port-shared"}


def lacking(outcome: Outcome, missing: tuple[Key, ...]) -> bool:
    """Returns whether the input itself lacks the objects that something is missing, so that it failed before too."""
    known = {(each.kind, each.namespace, each.bare_name) for each in outcome.documents}
    return bool(missing) and not any(each.name.endswith("-todo") or tuple(each) in known for each in missing)


def manner(new: NewState, allow_waivers: bool) -> str:
    """Returns what the audit calls a hop that the report calls so."""
    if new.strength is None:
        return FAILING if new.todo else str(new)
    return FAILING if new.strength.waived and not allow_waivers else new.strength.group


def assert_audit_agrees(outcome: Outcome) -> ImportCheck:
    """Checks that the audit of the objects agrees with the last column of the report for each hop. The input must be whole:
    Services with endpoints, and all Secrets."""
    # Gateways on the same port are looked at as if each had an address of its own, as the report asks for.
    found = check(outcome.result, outcome.settings.now, ADDRESSES if shared_ports(outcome) else ON_A_HOST)
    by_backend: dict[str, set[NewState]] = {}
    for row in outcome.result.rows:
        if row.new.how not in (HopOutcome.DROPPED, HopOutcome.CLOSED):
            by_backend.setdefault(row.backend, set()).add(row.new)
    audited = set()
    reasons = {note.reason for note in outcome.result.notes}
    for hop in found.hops:
        if hop.backend.name == NO_BACKEND["backendRefs"][0]["name"]:
            continue
        backend = f"{hop.backend}:{hop.port}"
        audited.add(backend)
        allowed = {manner(new, outcome.settings.allow_waivers) for new in by_backend[backend]}
        closed = "is not accepted" in hop.detail and reasons & {"default-certificate", "secret-missing", "inline-certificate"}
        if hop.refused and (closed or lacking(outcome, hop.missing)):
            continue
        assert hop.manner in allowed, (hop, by_backend[backend])
    assert audited == set(by_backend)
    return found


def assert_check_has_only_todos(outcome: Outcome) -> None:
    """Checks that `lasthop check` names nothing but what the report calls a decision or a TODO, and what the input lacks."""
    told = {note.target for note in outcome.result.notes if note.category in (Category.DECISION, Category.TODO)}
    policies = {each.name for each in outcome.result.objects if each.kind == "BackendTLSPolicy"}
    waiting = set() if outcome.settings.allow_waivers else policies
    todo = {note.reason for note in outcome.result.notes if note.category is Category.TODO}
    errors = assert_audit_agrees(outcome).errors
    if shared_ports(outcome):
        on_a_host = check(outcome.result, outcome.settings.now).errors
        errors += tuple(each for each in on_a_host if "belongs to Gateway" in each.finding.message)
    for mistake in errors:
        finding = mistake.finding
        certificate = finding.object is not None and finding.object.kind == "Gateway" and "default-certificate" in todo
        closed = any(each.name == NO_BACKEND["backendRefs"][0]["name"] for each in finding.missing)
        expected = closed or str(finding.object) in told | waiting or lacking(outcome, finding.missing) or certificate
        assert expected, str(finding)
