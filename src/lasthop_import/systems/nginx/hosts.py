"""Determines the owner of each host: the oldest object of any kind [internal/k8s/configuration.go]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lasthop_import.documents import Document, mappings, texts
from lasthop_import.ingresses import class_of
from lasthop_import.inputs import Inputs
from lasthop_import.systems.nginx.kinds import TRANSPORT_SERVER, VIRTUAL_SERVER

MERGEABLE: Final = "nginx.org/mergeable-ingress-type"


class Hosts:
    def __init__(self, inputs: Inputs, classed: Iterable[Document], ingresses: list[Document]) -> None:
        """`classed`: objects with a class of the controller."""
        self._inputs = inputs
        self._classed = frozenset(classed)
        self._owners: dict[str, Document] = {}
        documents = [
            document for kind in (VIRTUAL_SERVER, TRANSPORT_SERVER) for document in inputs.of(kind) if self.is_ours(document)
        ]
        documents += [document for document in ingresses if document.annotations.get(MERGEABLE) != "minion"]
        for document in sorted(documents, key=lambda document: (document.created or "1970", document.kind, document.path)):
            for host in _hosts(document):
                self._owners.setdefault(host, document)

    def is_ours(self, document: Document) -> bool:
        """Returns whether the object has an imported class, or no class, which means all classes."""
        return document in self._classed or not class_of(document)

    def serves(self, document: Document) -> bool:
        """Returns whether a VirtualServer or TransportServer owns its host. Lists it if not."""
        if not self.is_ours(document):
            return False
        for host in _hosts(document):
            owner = self._owners[host]
            if owner is not document:
                self._inputs.skip(document, "host-taken", f"{host} belongs to the older {owner.name}")
                return False
        return True

    def owner(self, host: str) -> Document | None:
        return self._owners.get(host)


def _hosts(document: Document) -> list[str]:
    rules = mappings(document.spec.get("rules")) if document.kind == "Ingress" else [document.spec]
    return [host.lower() for host in texts([rule.get("host") for rule in rules]) if host]
