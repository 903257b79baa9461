"""Runs an import of texts, as the command does, and reduces its result to something that people can read."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from lasthop_import.decisions import Decisions, read_decisions
from lasthop_import.documents import Document, SourceText, read_texts
from lasthop_import.registry import AUTO, SYSTEMS, detected
from lasthop_import.result import ImportResult
from lasthop_import.run import NORMALIZED, SystemsRead, read, write
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.openshift.routing import UNMATCHED
from tests.world import NOW

FILES = Path(__file__).parent / "cases" / "files"
INPUT = "input.yaml"
_NAMED = re.compile(r'"@([a-z.-]+)"')
ORIGINS = ("lasthop.dev/imported-from",)
QUIET = ("GatewayClass", "Service", "EndpointSlice", "Secret")
"""Kinds of which only those that are not in the input are shown."""


class Outcome(NamedTuple):
    settings: ImportSettings
    decisions: Decisions
    documents: tuple[Document, ...]
    reading: SystemsRead
    result: ImportResult


def settings(**options: Any) -> ImportSettings:
    """Returns settings from plain values; `ca_files` and `flags` may name files as `@ca.pem`."""
    for name in ("ca_files", "flags"):
        given = options.get(name, {})
        options[name] = {key: _content_of(value) for key, value in given.items()}
    return msgspec.convert({"now": NOW.timestamp(), **options}, ImportSettings)


def _content_of(value: Any) -> Any:
    named = isinstance(value, str) and value.startswith("@")
    return (FILES / value[1:]).read_bytes() if named else value


def filled(text: str) -> str:
    """Replaces "@ca.pem" by the content of that file, as YAML."""
    return _NAMED.sub(lambda found: json.dumps((FILES / found[1]).read_text()), text)


def decided(text: str) -> Decisions:
    found = read_decisions("decisions.yaml", filled(text).encode())
    return msgspec.structs.replace(found, files={name: (FILES / name).read_bytes() for name in found.named_files})


def run_documents(
    system: str, documents: tuple[Document, ...], wanted: ImportSettings, decisions: Decisions, problems: Iterable[Any] = ()
) -> Outcome:
    systems = detected(documents) if system == AUTO else [SYSTEMS[system]]
    reading = read(systems, documents, wanted)
    names = [each.name for each in systems] or [system]
    result = write(names, reading, documents, wanted, decisions, tuple(problems))
    return Outcome(wanted, decisions, documents, reading, result)


def run_text(system: str, text: str, decisions: str = "", **options: Any) -> Outcome:
    found = read_texts([SourceText(INPUT, filled(text).encode())])
    return run_documents(system, found.documents, settings(**options), decided(decisions), found.problems)


def run_values(system: str, values: Iterable[dict[str, Any]], decisions: Decisions, wanted: ImportSettings) -> Outcome:
    """Imports documents that were made by a test. They have no lines."""
    return run_documents(system, tuple(Document(each, SourceText("")) for each in values), wanted, decisions)


# --- for people ------------------------------------------------------------------------------------------------------


def shown(outcome: Outcome, kinds: Collection[str] = ()) -> str:
    """Returns exit code, hops and notes, as the second half of a case has them; objects of these kinds whole, others by
    name."""
    result = outcome.result
    kept = {(each.kind, each.namespace, each.bare_name) for each in outcome.documents}
    parts: dict[str, Any] = {"exit": result.exit_code()}
    if result.problems:
        parts["problems"] = [f"{each.file}:{each.line}: {each.message}" for each in result.problems]
    policies = {each.name: each.document for each in result.objects if each.kind in ("BackendTLSPolicy", "XBackend")}
    parts["hops"] = [_row(each, policies) for each in result.rows]
    parts["notes"] = [_note(each) for each in result.notes if each not in (NORMALIZED, UNMATCHED)]
    if result.questions:
        parts["questions"] = {
            each.port: {"reason": each.reason, "was": each.was, "answers": ["; ".join(lines) for lines in each.answers]}
            for each in result.questions
        }
    written = [
        each
        for each in result.objects
        if each.kind not in QUIET or (each.kind, each.key[0], each.key[2]) not in kept
        if each.kind != "GatewayClass"
    ]
    parts["written"] = [each.name for each in written if each.kind not in kinds]
    if kinds:
        parts["objects"] = {each.name: _content(each.document) for each in written if each.kind in kinds}
    text = "".join(
        yaml.safe_dump({key: value}, sort_keys=False, width=1000, allow_unicode=True, default_flow_style=None)
        if key in ("objects", "written")
        else yaml.safe_dump({key: value}, sort_keys=False, width=1000, allow_unicode=True)
        for key, value in parts.items()
    )
    for file in sorted(FILES.glob("*.*")):
        if file.suffix in (".pem", ".crt", ".key", ".crl"):
            text = text.replace(json.dumps(file.read_text()), f'"@{file.name}"')
    return text


def _row(row: Any, policies: Mapping[str, Any]) -> str:
    believed = f" (seemed {row.believed})" if row.misled else ""
    role = f" {row.role}" if row.role != "backend" else ""
    by = f" by {row.target}{_checks(policies.get(row.target, {}))}" if row.target else ""
    return f"{row.backend}{role} from {row.source.object} {row.source.field}: {row.old}{believed} -> {row.new}{by}"


def _checks(policy: Mapping[str, Any]) -> str:
    """Returns what a policy holds certificates against, and its options."""
    spec = policy.get("spec", {})
    validation = spec.get("validation") or spec.get("tls", {}).get("validation") or {}
    trust = [f"{each['kind']} {each['name']}" for each in validation.get("caCertificateRefs", ())]
    trust += [validation[key] for key in ("wellKnownCACertificates",) if key in validation]
    names = [each.get("hostname") or each["uri"] for each in validation.get("subjectAltNames", ())]
    settings = {**spec.get("options", {}), **policy.get("metadata", {}).get("annotations", {})}
    own = sorted(f"{key.partition('/')[2]}={value}" for key, value in settings.items() if key not in ORIGINS)
    parts = [validation.get("hostname", ""), *(f"or {each}" for each in names), *trust, *own]
    return f" ({', '.join(each for each in parts if each)})" if validation else ""


def _note(note: Any) -> str:
    source = note.source
    place = f"{source.document.line(source.path)}: {source.object} {source.field}".strip() if source else ""
    target = f" -> {note.target}" if note.target else ""
    return f"{note.level} {note.category} {note.reason} at {place}: {note.text}{target}"


def _content(document: dict[str, Any]) -> Any:
    rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    return rest.get("spec", rest) if len(rest) <= 1 else rest
