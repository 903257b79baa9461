"""Defines the input and output of writing stages. A stage is a function of frozen values; `run.write` has their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lasthop_import.decisions import Decisions
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Note, SourceRef
from lasthop_import.settings import ImportSettings
from lasthop_import.writer.objects import ObjectWriter, Written

Grant = tuple[str, str, str, str, str]
"""Kind and namespace of the referring object, then kind, namespace and name of the object in another namespace."""


class WriterContext(msgspec.Struct, frozen=True):
    """The input of every stage."""

    inputs: Inputs
    settings: ImportSettings
    decisions: Decisions
    origins: Mapping[Document, str]
    """The system that has read each object."""
    system: str
    """The system of all other objects."""

    def objects(self, taken: Iterable[tuple[str, str, str]] = ()) -> ObjectWriter:
        """Returns a writer that avoids the names of `taken` and of the input's ConfigMaps and Secrets."""
        input_names = [(d.kind, d.namespace, d.bare_name) for d in self.inputs.documents if d.kind in ("ConfigMap", "Secret")]
        return ObjectWriter([*input_names, *taken], self._origin)

    def _origin(self, source: SourceRef) -> str:
        document = source.document
        return f"{self.origins.get(document, self.system)}/{document.kind}/{document.path}"


class StageOutput(msgspec.Struct, frozen=True, kw_only=True):
    objects: tuple[Written, ...] = ()
    notes: tuple[Note, ...] = ()
    grants: frozenset[Grant] = frozenset()
