"""Splits a port whose routes require different TLS: each further requirement gets a Service of its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop_import.decisions import Decisions
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import Imported, ImportedHop, ImportedRule, ServiceBackend
from lasthop_import.names import shortened
from lasthop_import.notes import Category, Note
from lasthop_import.rule_hops import RuleHop, groups
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.conflicts import strictest, tls_hops_of


class Split(NamedTuple):
    imported: Imported
    services: tuple[Document, ...] = ()
    """The Services, and EndpointSlices, to write."""
    notes: tuple[Note, ...] = ()


def split_conflicts(
    inputs: Inputs, imported: Imported, rule_hops: Sequence[RuleHop], decisions: Decisions, settings: ImportSettings
) -> Split:
    """Returns the rules with separate backends for the conflicts that a decision splits."""
    renamed: dict[int, str] = {}
    documents: list[Document] = []
    notes: list[Note] = []
    for (kind, namespace, name, _), port_hops in groups(rule_hops).items():
        tls_hops = tls_hops_of(port_hops)
        if kind != "Service" or not tls_hops:
            continue
        chosen = strictest(tls_hops)
        if not chosen.conflict or not _is_to_split(chosen.rule_hop, decisions, settings):
            continue
        service = inputs.find("Service", namespace, name)
        if service is None:
            text = f"Service {namespace}/{name} is not in the input, so no second one can be written"
            notes.append(Note(Category.TODO, "cannot-split", text, chosen.rule_hop.source, remedy="Add it to the input."))
            continue
        for alias, hops in _aliases(name, tls_hops, chosen.tls.meaning):
            documents += _copies(inputs, service, alias)
            renamed |= {id(hop): alias for hop in hops}
    rules = tuple(_renamed(rule, renamed) for rule in imported.rules)
    return Split(msgspec.structs.replace(imported, rules=rules), tuple(documents), tuple(notes))


def _is_to_split(rule_hop: RuleHop, decisions: Decisions, settings: ImportSettings) -> bool:
    decision = decisions.by_port.get(str(rule_hop.port))
    return decision.split if decision else settings.split_conflicts


def _aliases(name: str, tls_hops: Sequence[tuple[RuleHop, object]], first: object) -> Iterator[tuple[str, list[ImportedHop]]]:
    """Yields a Service name for each requirement except the first, with its hops. The name contains the first route."""
    ways: dict[object, list[RuleHop]] = {}
    for rule_hop, _ in tls_hops:
        assert rule_hop.tls is not None
        if rule_hop.tls.meaning != first:
            ways.setdefault(rule_hop.tls.meaning, []).append(rule_hop)
    taken: set[str] = set()
    for rule_hops in ways.values():
        route = rule_hops[0].rule.route if rule_hops[0].rule else "other"
        alias = shortened(f"{name}-{route}")
        while alias in taken:
            alias = shortened(f"{alias}-2")
        taken.add(alias)
        yield alias, [rule_hop.hop for rule_hop in rule_hops]


def _copies(inputs: Inputs, service: Document, alias: str) -> Iterator[Document]:
    yield _copied_service(service, alias)
    if service.spec.get("selector"):
        return  # Kubernetes writes its EndpointSlices
    for endpoints in inputs.slices(service.namespace, service.bare_name):
        labels = {"kubernetes.io/service-name": alias}
        renamed = {"name": shortened(f"{endpoints.bare_name}-{alias}"), "namespace": endpoints.namespace, "labels": labels}
        yield _document({**copy.deepcopy(endpoints.value), "metadata": renamed}, endpoints)


def _copied_service(service: Document, alias: str) -> Document:
    spec = service.spec
    kept = {key: spec[key] for key in ("selector", "ports", "type", "externalName") if key in spec}
    if kept.get("type") not in (None, "ExternalName"):
        kept["type"] = "ClusterIP"
    if isinstance(kept.get("ports"), list):
        kept["ports"] = [_without_node_port(port) for port in kept["ports"]]
    metadata = {"name": alias, "namespace": service.namespace}
    return _document({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": kept}, service)


def _without_node_port(port: Any) -> Any:
    return {key: value for key, value in port.items() if key != "nodePort"} if isinstance(port, dict) else port


def _document(value: Json, origin: Document) -> Document:
    return Document(value, origin.text, origin.span, origin.base)


def _renamed(rule: ImportedRule, renamed: dict[int, str]) -> ImportedRule:
    replace = msgspec.structs.replace

    def to_alias(hop: ImportedHop) -> ImportedHop:
        alias = renamed.get(id(hop))
        if alias is None or not isinstance(hop.backend, ServiceBackend):
            return hop
        return replace(hop, backend=replace(hop.backend, name=alias))

    return replace(
        rule,
        hops=tuple(map(to_alias, rule.hops)),
        mirrors=tuple(replace(mirror, hop=to_alias(mirror.hop)) for mirror in rule.mirrors),
        auth=replace(rule.auth, hop=to_alias(rule.auth.hop)) if rule.auth else None,
    )
