"""Selects the GatewayClasses of Envoy Gateway: by controller, else by objects that use Envoy Gateway's kinds.

A folder often has no GatewayClass. Then the Gateways of a class decide: one of them has an EnvoyProxy, is the target of an
Envoy Gateway policy, or has a route that uses an Envoy Gateway kind.
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
    """Returns Envoy Gateway's classes with their parametersRef. None imports all classes: the input shows no controller."""
    classes = {}
    foreign: set[str] = set()
    for document in inputs.of(KINDS["GatewayClass"]):
        spec = inputs.open(document).child("spec")
        controller = spec.text("controllerName")
        spec.ignore("description")
        reference = spec.mapping("parametersRef")
        if controller == CONTROLLER:
            classes[document.bare_name] = reference
        else:
            foreign.add(document.bare_name)
            inputs.skip(document, "other-class", f"its controller is {controller[:100]}")
    if classes or (evident := _evident(inputs)):
        return classes or evident
    names = {str(gateway.spec.get("gatewayClassName")) for gateway in inputs.of(KINDS["Gateway"])} - foreign
    if len(names) == 1:
        return {name: {} for name in names} if foreign else None
    for document in inputs.of(KINDS["Gateway"]):
        if document.spec.get("gatewayClassName") in names:
            text = f"the input does not show which of the classes {', '.join(sorted(names))} are Envoy Gateway's; not imported"
            note = Note(Category.TODO, CLASS_UNKNOWN, text, SourceRef(document), remedy="Add the GatewayClasses to the input.")
            inputs.notes.append(note)
    return {}


def _evident(inputs: Inputs) -> dict[str, Json]:
    gateways = {ObjectName(gateway.namespace, gateway.bare_name): gateway.spec for gateway in inputs.of(KINDS["Gateway"])}
    targets = set(_targets(inputs))
    names = {name for kind, name in targets if kind == "Gateway"}
    names |= {name for name, spec in gateways.items() if any(_groups(spec.get("infrastructure")))}
    routes = [route for kind in ROUTES for route in inputs.of(KINDS[kind])]
    names |= {parent for route in routes if _is_evident(route, targets) for parent in parents(route)}
    return {str(gateways[name].get("gatewayClassName")): {} for name in names if name in gateways}


def _is_evident(route: Document, targets: Container[tuple[str, ObjectName]]) -> bool:
    """Returns whether an Envoy Gateway policy targets a route, or the route refers to an Envoy Gateway kind."""
    targeted = (route.kind, ObjectName(route.namespace, route.bare_name)) in targets
    return targeted or any(_groups(route.spec.get("rules")))


def parents(document: Document) -> list[ObjectName]:
    """Returns the names in a route's parentRefs."""
    return [
        ObjectName(str(ref.get("namespace") or document.namespace), str(ref.get("name")))
        for ref in mappings(document.spec.get("parentRefs"))
    ]


def _targets(inputs: Inputs) -> Iterator[tuple[str, ObjectName]]:
    for kind in OWN.values():
        for document in inputs.of(kind):
            spec = document.spec
            for ref in (*mappings(spec.get("targetRefs")), *mappings([spec.get("targetRef")])):
                yield str(ref.get("kind")), ObjectName(document.namespace, str(ref.get("name")))


def _groups(value: Any) -> Iterator[bool]:
    """Yields True for each reference to an Envoy Gateway kind."""
    if isinstance(value, dict):
        if value.get("group") == GROUP:
            yield True
        for child in value.values():
            yield from _groups(child)
    elif isinstance(value, list):
        for child in value:
            yield from _groups(child)
