"""Defines the kinds of Traefik, in both API groups, and lists unused objects."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object
from lasthop_import.documents import Document
from lasthop_import.inputs import INGRESS, Inputs
from lasthop_import.reader import FieldReader

GROUP, OLD_GROUP = "traefik.io", "traefik.containo.us"
GROUPS: Final = (GROUP, OLD_GROUP)
PREFIX: Final = "traefik.ingress.kubernetes.io"
_NAMES: Final = (
    "IngressRoute",
    "IngressRouteTCP",
    "IngressRouteUDP",
    "Middleware",
    "MiddlewareTCP",
    "ServersTransport",
    "ServersTransportTCP",
    "TLSOption",
    "TLSStore",
    "TraefikService",
)
KINDS: Final = (
    *(Kind(name, group, ("v1alpha1",), f"{name.lower()}s", Object) for group in GROUPS for name in _NAMES),
    INGRESS,
)
OTHER_PROVIDER: Final = "@"
CRD: Final = "@kubernetescrd"
_SECONDARY: Final = (
    "Middleware",
    "MiddlewareTCP",
    "ServersTransport",
    "ServersTransportTCP",
    "TLSOption",
    "TLSStore",
    "TraefikService",
)


class TraefikObjects:
    """Finds objects by kind and name, in both API groups."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def of(self, kind: str) -> list[Document]:
        """Returns the objects of a kind, oldest first. If an object is in both groups, the new group counts."""
        documents: dict[str, Document] = {}
        for group_kind in (kind_ for kind_ in KINDS if kind_.kind == kind):
            for document in self._inputs.of(group_kind):
                first = documents.setdefault(document.path, document)
                if first is not document:
                    self._inputs.skip(document, "in-both-groups", f"{first.api_version} has the same {kind}, which is read")
        return sorted(documents.values(), key=lambda document: document.age)

    def find(self, kind: str, namespace: str, name: str) -> FieldReader | None:
        """Opens an object; None if it is not in the input."""
        for group in GROUPS:
            document = self._inputs.find(kind, namespace, name, group)
            if document is not None and document.api_version.endswith("/v1alpha1"):
                return self._inputs.open(document)
        return None

    def find_normalized(self, kind: str, name: str) -> FieldReader | None:
        """Opens the object with the normalized name `namespace-name`. The namespace may contain dashes."""
        for document in self.of(kind):
            if f"{document.namespace}-{document.bare_name}" == name:
                return self._inputs.open(document)
        return None

    def skip_unused(self) -> None:
        for kind in _SECONDARY:
            for document in self.of(kind):
                if not self._inputs.opened(document):
                    self._inputs.skip(document, "unused", "no route that is imported uses it")
