"""Translates ReferenceGrants: grants for Backends become grants for their replacements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lasthop.base.api.documents import Json
from lasthop_import.documents import Document, mapping
from lasthop_import.inputs import Inputs
from lasthop_import.systems.envoy_gateway.backends import EnvoyGatewayBackends
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN


def granted(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, spec: Json) -> Json | None:
    """Returns the spec of a grant without Envoy Gateway kinds; None if it is empty then."""
    sources = [source for source in spec.get("from") or () if mapping(source).get("group") != GROUP]
    to = [target for entry in spec.get("to") or () for target in _translated(inputs, backends, document, entry)]
    return {**spec, "from": sources, "to": _unique(to)} if sources and to else None


def _unique(entries: list[Any]) -> list[Any]:
    return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]


def _translated(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, entry: Any) -> Iterator[Any]:
    if mapping(entry).get("group") != GROUP:
        yield entry
        return
    names = [entry["name"]] if entry.get("name") else []
    every = [backend.bare_name for backend in inputs.of(OWN["Backend"]) if backend.namespace == document.namespace]
    for name in names or every:
        for group, kind, new in backends.names(document.namespace, str(name)):
            yield {"group": group, "kind": kind, "name": new}
