"""Translates the ReferenceGrants: those for Backends become grants for their replacements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lasthop.base.api.documents import Json
from lasthop_import.documents import Document, mapping
from lasthop_import.inputs import Inputs
from lasthop_import.systems.envoy_gateway.backends import EnvoyGatewayBackends
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN


def granted(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, spec: Json) -> Json | None:
    """Returns the spec of a grant without the kinds of Envoy Gateway; None if nothing is left of it."""
    sources = [each for each in spec.get("from") or () if mapping(each).get("group") != GROUP]
    to = [new for each in spec.get("to") or () for new in _translated(inputs, backends, document, each)]
    return {**spec, "from": sources, "to": _unique(to)} if sources and to else None


def _unique(entries: list[Any]) -> list[Any]:
    return [each for number, each in enumerate(entries) if each not in entries[:number]]


def _translated(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, entry: Any) -> Iterator[Any]:
    if mapping(entry).get("group") != GROUP:
        yield entry
        return
    named = [entry["name"]] if entry.get("name") else []
    every = [each.bare_name for each in inputs.of(OWN["Backend"]) if each.namespace == document.namespace]
    for name in named or every:
        for group, kind, new in backends.names(document.namespace, str(name)):
            yield {"group": group, "kind": kind, "name": new}
