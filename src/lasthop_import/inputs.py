"""Answers an importer's questions about the input: objects by kind, Services and their ports, certificates in Secrets.

It records missing objects, so that the command can get exactly these Secrets from a cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lasthop.base.api.kinds import KINDS, Kind
from lasthop.base.api.meta import Key, Object
from lasthop_import.documents import Document, mapping, mappings
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef, shown_value
from lasthop_import.reader import UNREAD, Account, FieldReader
from lasthop_import.values import is_port

INGRESS: Final = Kind("Ingress", "networking.k8s.io", ("v1",), "ingresses", Object)
INGRESS_CLASS: Final = Kind("IngressClass", "networking.k8s.io", ("v1",), "ingressclasses", Object, namespaced=False)
SHARED: Final = (KINDS["Service"], KINDS["EndpointSlice"], INGRESS_CLASS)
"""Kinds that every importer reads."""
FETCHED: Final = ("Secret", "ConfigMap")
"""Kinds whose objects are fetched from a cluster one by one."""


class PortOfService(NamedTuple):
    number: int
    name: str = ""
    app_protocol: str = ""
    target: int | str = 0


class Inputs:
    def __init__(self, documents: Iterable[Document], hidden: Mapping[Key, str] | None = None) -> None:
        """`hidden`: objects that may exist but that the user may not read, with reasons."""
        self.documents = tuple(sorted(documents, key=lambda document: (document.kind, *document.age)))
        self.notes: list[Note] = []
        self.missing: set[Key] = set()
        """ConfigMaps and Secrets that were looked up and are missing."""
        self.hidden = hidden or {}
        self._accounts: dict[Document, Account] = {}
        self._by_key: dict[tuple[str, str, str, str], Document] = {}
        self._by_kind: dict[tuple[str, str], list[Document]] = {}
        for document in self.documents:
            self._by_key.setdefault((document.group, document.kind, document.namespace or "", document.bare_name), document)
            self._by_kind.setdefault((document.group, document.kind), []).append(document)

    # --- objects of the system ---------------------------------------------------------------------------------------

    def of(self, kind: Kind) -> list[Document]:
        """Returns the objects of a kind, oldest first, in the versions that are read."""
        return [
            document
            for document in self._by_kind.get((kind.group, kind.kind), ())
            if document.api_version in kind.api_versions
        ]

    def unread_versions(self, kind: Kind) -> list[Document]:
        """Returns the objects of a kind in unsupported versions, whose content is unknown."""
        return [
            document
            for document in self._by_kind.get((kind.group, kind.kind), ())
            if document.api_version not in kind.api_versions
        ]

    def open(self, document: Document) -> FieldReader:
        """Returns a reader of an object. The importer must read, ignore or list all of its fields; others count as unknown."""
        account = self._accounts.get(document)
        if account is None:
            account = self._accounts[document] = Account(document, self.notes)
        return FieldReader(account, document.value)

    def opened(self, document: Document) -> bool:
        return document in self._accounts

    def skip(self, document: Document, reason: str, text: str) -> None:
        """Lists an object that does not belong to this gateway."""
        self.notes.append(Note(Category.SKIPPED, reason, text, SourceRef(document)))

    def unknown(self) -> list[Note]:
        """Lists every field of an opened object that no importer has read."""
        return [
            Note(
                Category.UNKNOWN,
                UNREAD,
                "this importer does not know the field, and it is not carried over",
                SourceRef(document, path),
                "" if document.kind == "Secret" else shown_value(SourceRef(document, path).content),
            )
            for document, account in self._accounts.items()
            for path in account.unread()
        ]

    # --- lookups -----------------------------------------------------------------------------------------------------

    def find(self, kind: str, namespace: str, name: str, group: str = "") -> Document | None:
        document = self._by_key.get((group, kind, namespace, name))
        if document is None and kind in FETCHED and not group and name:
            self.missing.add(Key(kind, namespace, name))
        return document

    def absence(self, kind: str, namespace: str, name: str) -> str:
        """Returns the predicate of a sentence about an object that `find` does not return."""
        return self.hidden.get(Key(kind, namespace, name), "is not in the input")

    def data(self, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """Returns the content of a ConfigMap or Secret; None if it is missing."""
        document = self.find(kind, namespace, name)
        if document is None:
            return None
        content: dict[str, bytes] = {}
        for field in ("data", "binaryData", "stringData"):
            encoded = field == "binaryData" or (field == "data" and kind == "Secret")
            for key, value in _texts(document.value.get(field)).items():
                try:
                    content[key] = base64.b64decode(value, validate=True) if encoded else value.encode()
                except ValueError:
                    self._note_base64(SourceRef(document, (field, key)))
        return content

    def _note_base64(self, source: SourceRef) -> None:
        text = f"data.{source.path[-1]} is not base64, and counts as missing"
        note = Note(Category.TODO, "bad-base64", text, source, severity=NoteSeverity.WARNING)
        if note not in self.notes:
            self.notes.append(note)

    def ports(self, namespace: str, name: str, protocol: str = "TCP") -> tuple[PortOfService, ...] | None:
        """Returns the ports of a Service; None if it is missing."""
        service = self.find("Service", namespace, name)
        if service is None:
            return None
        return tuple(
            PortOfService(
                port["port"],
                _text(port.get("name")),
                _text(port.get("appProtocol")),
                port.get("targetPort") or port["port"],
            )
            for port in mappings(service.spec.get("ports"))
            if isinstance(port.get("port"), int) and port.get("protocol", "TCP") == protocol
        )

    def slices(self, namespace: str, service: str) -> list[Document]:
        slices = (document for document in self.documents if document.kind == "EndpointSlice")
        return [document for document in slices if document.namespace == namespace and service_of(document) == service]

    def port(self, namespace: str, name: str, port: int | str | None, protocol: str = "TCP") -> PortOfService | None:
        """Returns a port of a Service by number or name, or its only one. Without the Service, only a number is known."""
        ports = self.ports(namespace, name, protocol)
        if ports is None:
            return PortOfService(port) if isinstance(port, int) and is_port(port) else None
        if port is None:
            return ports[0] if len(ports) == 1 else None
        return next((candidate for candidate in ports if port in (candidate.number, candidate.name)), None)

    def annotations(self, kind: str, namespace: str, name: str) -> dict[str, str]:
        """Returns the annotations of an object without an account, for example a Service."""
        document = self.find(kind, namespace, name)
        return _texts(document.annotations) if document else {}


def service_of(endpoints: Document) -> str:
    return str(endpoints.labels.get("kubernetes.io/service-name", ""))


def _texts(values: Any) -> dict[str, str]:
    return {key: value for key, value in mapping(values).items() if isinstance(value, str)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
