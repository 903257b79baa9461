"""Collects the objects that an import writes, with their files and sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop_import.model import ImportedRule
from lasthop_import.names import shortened
from lasthop_import.notes import SourceRef

IMPORTED_FROM: Final = "lasthop.dev/imported-from"
CLOSED: Final = {"lasthop.dev/closed": "answers 500 until decisions.yaml opens it: its access control is not carried over"}
"""The annotation of a route with closed rules. Gateway API has no fixed answer such as 403."""
SHOWN_SOURCES: Final = 20
"""Maximum sources in an annotation; a Service may have thousands of routes."""


class OutputFile(StrEnum):
    GATEWAY = "gateway.yaml"
    ROUTES = "routes.yaml"
    BACKEND_TLS = "backend-tls.yaml"
    TRUST = "trust.yaml"
    WAIVERS = "waivers.yaml"
    OPERATOR = "operator.yaml"
    BACKENDS = "backends.yaml"
    SECRETS = "secrets.yaml"


class Written(NamedTuple):
    file: OutputFile
    document: Json
    sources: tuple[SourceRef, ...]
    comment: tuple[str, ...] = ()
    """Lines above the object."""
    rules: tuple[ImportedRule, ...] = ()
    """The imported rules of a route, in the order of its rules."""

    @property
    def kind(self) -> str:
        return str(self.document["kind"])

    @property
    def key(self) -> tuple[str, str, str]:
        metadata = self.document["metadata"]
        return (metadata.get("namespace", ""), self.kind, metadata["name"])

    @property
    def name(self) -> str:
        namespace, kind, name = self.key
        return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


class ObjectWriter:
    def __init__(self, taken: Iterable[tuple[str, str, str]], origin: Callable[[SourceRef], str]) -> None:
        """`taken`: kind, namespace and name of objects that exist; `origin` names a source, as in annotations."""
        self._taken = set(taken)
        self._origin = origin
        self.objects: list[Written] = []

    def free_name(self, kind: str, namespace: str, preferred: str) -> str:
        """Returns an unused name for an object of the kind, and reserves it."""
        name = shortened(preferred)
        number = 1
        while (kind, namespace, name) in self._taken:
            number += 1
            name = shortened(f"{preferred}-{number}")
        self._taken.add((kind, namespace, name))
        return name

    def add(
        self,
        file: OutputFile,
        document: Json,
        sources: Iterable[SourceRef],
        comment: tuple[str, ...] = (),
        rules: tuple[ImportedRule, ...] = (),
    ) -> Written:
        unique_sources = tuple(dict.fromkeys(sources))
        names = sorted({self._origin(source) for source in unique_sources})
        if names:
            more = f",and {len(names) - SHOWN_SOURCES} more" if len(names) > SHOWN_SOURCES else ""
            metadata = document["metadata"]
            closed = CLOSED if any(rule.closed for rule in rules) else {}
            origin = {IMPORTED_FROM: ",".join(names[:SHOWN_SOURCES]) + more}
            annotations = {**metadata.get("annotations", {}), **closed, **origin}
            document = {**document, "metadata": {**metadata, "annotations": annotations}}
        written = Written(file, document, unique_sources, comment, rules)
        self.objects.append(written)
        return written
