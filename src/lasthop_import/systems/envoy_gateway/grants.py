"""Translates the ReferenceGrants: those for Backends become grants for what these are now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lasthop.base.api.documents import Json
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.systems.envoy_gateway.backends import EnvoyGatewayBackends
from lasthop_import.systems.envoy_gateway.kinds import GROUP, OWN


def granted(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, spec: Json) -> Json | None:
    """Returns the spec of a grant without the kinds of Envoy Gateway; None if nothing is left of it."""
    sources = [each for each in spec.get("from") or () if not (isinstance(each, dict) and each.get("group") == GROUP)]
    to = [new for each in spec.get("to") or () for new in _translated(inputs, backends, document, each)]
    targets = [each for number, each in enumerate(to) if each not in to[:number]]
    return {**spec, "from": sources, "to": targets} if sources and targets else None


def _translated(inputs: Inputs, backends: EnvoyGatewayBackends, document: Document, entry: Any) -> Iterator[Any]:
    if not isinstance(entry, dict) or entry.get("group") != GROUP:
        yield entry
        return
    named = [entry["name"]] if entry.get("name") else []
    every = [each.bare_name for each in inputs.of(OWN["Backend"]) if each.namespace == document.namespace]
    for name in named or every:
        for group, kind, new in backends.names(document.namespace, str(name)):
            yield {"group": group, "kind": kind, "name": new}
