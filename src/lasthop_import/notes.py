"""Defines the notes of the report: one for each difference, loss, question and unread field."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, Final

import msgspec

from lasthop.edge.admission.problem import Path, field
from lasthop_import.documents import Document


class Category(StrEnum):
    """Categories in the order of the report."""

    DECISION = "decision"
    """The import cannot choose; the hop fails closed until a decision is made."""
    TODO = "todo"
    """A task for the user: the output lacks something and has a placeholder."""
    BELIEVED = "believed"
    """The old gateway did less than its configuration suggests."""
    ACCESS_CONTROL = "access-control"
    """Authentication, authorization, IP lists, WAF or rate limits that are not carried over."""
    LOOSENED = "loosened"
    """The new gateway accepts what the old one refused."""
    TIGHTENED = "tightened"
    """The new gateway refuses what the old one accepted."""
    CANNOT = "cannot"
    """A setting without an equivalent."""
    UNKNOWN = "unknown"
    """A field or annotation that the importer does not know."""
    CHANGED = "changed"
    """The same purpose, another behaviour."""
    SKIPPED = "skipped"
    """The object does not belong to this gateway."""


class NoteSeverity(StrEnum):
    ERROR = "error"
    HIGH = "high"
    WARNING = "warning"
    INFO = "info"


SEVERITIES: Final = {
    Category.DECISION: NoteSeverity.ERROR,
    Category.TODO: NoteSeverity.ERROR,
    Category.BELIEVED: NoteSeverity.HIGH,
    Category.ACCESS_CONTROL: NoteSeverity.HIGH,
    Category.LOOSENED: NoteSeverity.HIGH,
    Category.TIGHTENED: NoteSeverity.HIGH,
    Category.CANNOT: NoteSeverity.WARNING,
    Category.UNKNOWN: NoteSeverity.WARNING,
    Category.CHANGED: NoteSeverity.WARNING,
    Category.SKIPPED: NoteSeverity.INFO,
}
ORDER: Final = {category: number for number, category in enumerate(Category)}
MAX_VALUE: Final = 120
"""Characters of a value that a note shows."""


class SourceRef(msgspec.Struct, frozen=True):
    """Locates a value of the input."""

    document: Document
    path: Path = ()

    @property
    def object(self) -> str:
        return self.document.name

    @property
    def field(self) -> str:
        return field(self.path)

    @property
    def content(self) -> Any:
        """Returns the value itself."""
        value: Any = self.document.value
        for step in self.path:
            value = value[step]
        return value

    def below(self, *steps: str | int) -> SourceRef:
        return SourceRef(self.document, (*self.path, *steps))

    @property
    def order(self) -> tuple[str, str]:
        """Sorts by identity, not by place in a file: shuffled input gives the same report."""
        return (self.object, self.field)


class Note(msgspec.Struct, frozen=True):
    category: Category
    reason: str
    """In kebab-case, for scripts."""
    text: str
    source: SourceRef | None = None
    value: str = ""
    """The value of the field, shortened; never a secret."""
    remedy: str = ""
    target: str = ""
    """The written object, for example `BackendTLSPolicy obs/grafana`."""
    severity: NoteSeverity | None = None
    everywhere: bool = False
    """The setting applies to the routes of all namespaces."""
    hides_tls: bool = False
    """The setting may have required TLS: the routes without TLS that it applies to are closed."""

    @property
    def level(self) -> NoteSeverity:
        return self.severity or SEVERITIES[self.category]

    @property
    def order(self) -> tuple[Any, ...]:
        return (ORDER[self.category], *(self.source.order if self.source else ("", "")), self.reason, self.target, self.text)


def shown_value(value: Any) -> str:
    """Formats a value of the input: as JSON, shortened, and without keys."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    if "PRIVATE KEY" in text:
        return "(a private key, not shown)"
    if len(text) <= MAX_VALUE:
        return text
    return f"{text[:MAX_VALUE]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()[:8]})"
