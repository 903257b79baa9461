"""Finds out which GatewayClasses are Envoy Gateway's: by their controller, else by the objects that use its own kinds.

A folder often has no GatewayClass. Then a class is Envoy Gateway's if one of its Gateways has an EnvoyProxy, is the target of
one of its policies, or has a route that uses one of its kinds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop_import.documents import Document, mappings
from lasthop_import.ingresses import CLASS_UNKNOWN
from lasthop_import.inputs import Inputs
from lasthop_import.model import ObjectName
from lasthop_import.notes import Category, Note, SourceRef
from lasthop_import.systems.envoy_gateway.kinds import CONTROLLER, GROUP, OWN, ROUTES


def own_classes(inputs: Inputs) -> dict[str, Json] | None:
    """Returns Envoy Gateway's classes with their parametersRef; None if nothing shows which are, so that all are taken."""
    found = {}
    foreign: set[str] = set()
    for document in inputs.of(KINDS["GatewayClass"]):
        spec = inputs.open(document).child("spec")
        controller = spec.text("controllerName")
        spec.ignore("description")
        reference = spec.mapping("parametersRef")
        if controller == CONTROLLER:
            found[document.bare_name] = reference
        else:
            foreign.add(document.bare_name)
            inputs.skip(document, "other-class", f"its controller is {controller[:100]}")
    if found or (shown := _evident(inputs)):
        return found or shown
    named = {str(each.spec.get("gatewayClassName")) for each in inputs.of(KINDS["Gateway"])} - foreign
    if len(named) == 1:
        return {name: {} for name in named} if foreign else None
    for document in inputs.of(KINDS["Gateway"]):
        if document.spec.get("gatewayClassName") in named:
            text = f"the input does not show which of the classes {', '.join(sorted(named))} are Envoy Gateway's; not imported"
            note = Note(Category.TODO, CLASS_UNKNOWN, text, SourceRef(document), remedy="Add the GatewayClasses to the input.")
            inputs.notes.append(note)
    return {}


def _evident(inputs: Inputs) -> dict[str, Json]:
    gateways = {ObjectName(each.namespace, each.bare_name): each.spec for each in inputs.of(KINDS["Gateway"])}
    targets = set(_targets(inputs))
    shown = {name for kind, name in targets if kind == "Gateway"}
    shown |= {name for name, spec in gateways.items() if any(_groups(spec.get("infrastructure")))}
    routes = [each for kind in ROUTES for each in inputs.of(KINDS[kind])]
    shown |= {parent for each in routes if _is_evident(each, targets) for parent in parents(each)}
    return {str(gateways[name].get("gatewayClassName")): {} for name in shown if name in gateways}


def _is_evident(route: Document, targets: Container[tuple[str, ObjectName]]) -> bool:
    """Returns whether a policy of Envoy Gateway targets a route, or the route refers to one of its kinds."""
    named = (route.kind, ObjectName(route.namespace, route.bare_name)) in targets
    return named or any(_groups(route.spec.get("rules")))


def parents(document: Document) -> list[ObjectName]:
    """Returns what a route is attached to."""
    return [
        ObjectName(str(each.get("namespace") or document.namespace), str(each.get("name")))
        for each in mappings(document.spec.get("parentRefs"))
    ]


def _targets(inputs: Inputs) -> Iterator[tuple[str, ObjectName]]:
    for kind in OWN.values():
        for document in inputs.of(kind):
            spec = document.spec
            for each in (*mappings(spec.get("targetRefs")), *mappings([spec.get("targetRef")])):
                yield str(each.get("kind")), ObjectName(document.namespace, str(each.get("name")))


def _groups(value: Any) -> Iterator[bool]:
    """Yields a value for each reference to a kind of Envoy Gateway."""
    if isinstance(value, dict):
        if value.get("group") == GROUP:
            yield True
        for below in value.values():
            yield from _groups(below)
    elif isinstance(value, list):
        for below in value:
            yield from _groups(below)
