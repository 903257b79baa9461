"""Reads texts as documents with their positions: several in a file, Lists, JSON, and OpenShift's Templates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from lasthop.base.api.documents import Json
from lasthop.edge.admission.problem import Path
from lasthop.edge.admission.yaml import Span, field_lines, parse
from lasthop_import.versions import converted

MAX_VALUES: Final = 10_000_000
"""Maximum mappings, lists and scalars in a text: some 100,000 objects. Files mode permits fewer; an import delays no
other work."""
CLUSTER_SCOPED: Final = frozenset(("Namespace", "IngressClass", "GatewayClass", "ClusterTrustBundle", "ClusterRole"))
_KUSTOMIZE: Final = "holds no objects, and may patch others: import the output of kustomize build instead of this folder"
_RENDERED: Final = {
    **dict.fromkeys(("kustomization.yaml", "kustomization.yml", "Kustomization"), _KUSTOMIZE),
    "Chart.yaml": "is part of a Helm chart: import the output of helm template instead of this folder",
}
"""Files of tools that render objects, with the way to import their output."""
_PARAMETER = re.compile(r"\$\{\{?([A-Za-z0-9_]+)\}?\}")


NOWHERE: Final = Span(0, 0, 0)


class SourceText(NamedTuple):
    """A file, standard input, or (without content) a cluster."""

    name: str
    content: bytes = b""


class Document:
    """An object of the input. Compared by identity: two files may hold the same text."""

    __slots__ = (
        "api_version",
        "bare_name",
        "base",
        "group",
        "kind",
        "metadata",
        "name",
        "namespace",
        "path",
        "span",
        "text",
        "value",
    )

    def __init__(
        self, value: Json, text: SourceText, span: Span = NOWHERE, base: Path = (), namespace: str = "default"
    ) -> None:
        """Converts older versions with a known schema. `namespace`: the default namespace."""
        self.value = value = converted(value)
        self.text = text
        self.span = span
        self.base = base
        self.api_version = _text(value.get("apiVersion"))
        self.group = self.api_version.rpartition("/")[0]
        self.kind = _text(value.get("kind"))
        self.metadata = mapping(value.get("metadata"))
        self.namespace = _text(self.metadata.get("namespace")) or ("" if self.kind in CLUSTER_SCOPED else namespace)
        self.bare_name = _text(self.metadata.get("name"))
        self.path = f"{self.namespace}/{self.bare_name}" if self.namespace else self.bare_name
        self.name = f"{self.kind} {self.path}"

    @property
    def spec(self) -> Json:
        return mapping(self.value.get("spec"))

    @property
    def labels(self) -> Json:
        return mapping(self.metadata.get("labels"))

    @property
    def annotations(self) -> Json:
        return mapping(self.metadata.get("annotations"))

    @property
    def created(self) -> str:
        return _text(self.metadata.get("creationTimestamp"))

    @property
    def age(self) -> tuple[str, str]:
        """Sorts oldest first, then by name, as most gateways do."""
        return (self.created or "1970-01-01T00:00:00Z", self.path)

    def line(self, path: Path) -> int:
        """Returns the line of a field, or of its nearest parent; 0 for an object without a file."""
        if not self.text.content:
            return 0
        lines = field_lines(self.text.content, self.span)
        whole = (*self.base, *path)
        for length in range(len(whole), -1, -1):
            if whole[:length] in lines:
                return lines[whole[:length]]
        return self.span.line

    def __repr__(self) -> str:
        return f"<{self.name}>"


def mapping(value: Any) -> Json:
    """Returns a mapping unchanged, and an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Json]:
    """Returns the mappings in a list; none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: Any) -> tuple[str, ...]:
    """Returns the strings in a list; none for any other value."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


class Unparsable(NamedTuple):
    """A part of a text that is not an object."""

    file: str
    line: int
    message: str
    hides: bool = True
    """It may hide objects that restrict access or ask for TLS."""


class ReadTexts(NamedTuple):
    documents: tuple[Document, ...]
    problems: tuple[Unparsable, ...]


def read_texts(texts: Iterable[SourceText], namespace: str = "default") -> ReadTexts:
    """Parses texts. Lists unreadable objects and uses the rest. If an object occurs several times, uses the first.

    `namespace`: the namespace of objects that name none, as `helm template` writes them.
    """
    documents: dict[tuple[str, str, str, str], Document] = {}
    problems: list[Unparsable] = []
    for document in (item for text in texts for item in _documents(text, namespace)):
        if isinstance(document, Unparsable):
            problems.append(document)
            continue
        key = (document.group, document.kind, document.namespace, document.bare_name)
        first = documents.setdefault(key, document)
        if first is not document and first.value != document.value:
            line = document.line(("metadata", "name"))
            message = f"{document.name} is there twice, and differs; the one in {first.text.name} is used"
            problems.append(Unparsable(document.text.name, line, message))
    return ReadTexts(tuple(documents.values()), tuple(problems))


def _documents(text: SourceText, namespace: str) -> Iterator[Document | Unparsable]:
    """Yields the objects of a text, and a problem for each other value in it."""
    as_json = text.name.endswith(".json") or text.content.lstrip()[:1] in (b"{", b"[")
    parsed = parse(text.content, as_json=as_json, max_values=MAX_VALUES)
    if parsed.mistakes and as_json and not text.name.endswith(".json"):
        parsed = parse(text.content, max_values=MAX_VALUES)
    yield from (Unparsable(text.name, mistake.line, mistake.message) for mistake in parsed.mistakes)
    for value, span in zip(parsed.documents, parsed.spans, strict=True):
        for base, item in _items(value, ()):
            yield _document(text, span, base, item, namespace)


def _document(text: SourceText, span: Span, base: Path, item: Any, namespace: str) -> Document | Unparsable:
    if not isinstance(item, dict):
        line = Document({}, text, span, base).line(())
        return Unparsable(text.name, line, "not an object: write apiVersion, kind and metadata", isinstance(item, list))
    document = Document(item, text, span, base, namespace)
    if problem := _RENDERED.get(text.name.rpartition("/")[2]):
        return Unparsable(text.name, document.line(()), problem)
    for field, value in (("apiVersion", document.api_version), ("kind", document.kind), ("metadata.name", document.bare_name)):
        if not value:
            message = f"{field} is missing or not a string, so this is not an object"
            return Unparsable(text.name, document.line(()), message, hides=bool(document.api_version or document.kind))
    return document


def _items(value: Any, base: Path) -> Iterator[tuple[Path, Any]]:
    """Yields the objects in a document: itself, or the objects of a List or Template, which may contain Lists."""
    match value:
        case {"kind": "Template", "objects": list() as objects}:
            defaults = _template_defaults(value)
            for number, item in enumerate(objects):
                yield from _items(_substituted(item, defaults), (*base, "objects", number))
        case {"kind": str() as kind, "items": list() as items} if kind.endswith("List"):
            implied = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind[: -len("List")]}
            for number, item in enumerate(items):
                completed = {**implied, **item} if isinstance(item, dict) else item
                yield from _items(completed, (*base, "items", number))
        case _:
            yield base, value


def _template_defaults(template: Json) -> dict[str, str]:
    return {
        parameter["name"]: str(parameter["value"])
        for parameter in template.get("parameters") or ()
        if isinstance(parameter, dict) and "name" in parameter and "value" in parameter
    }


def _substituted(value: Any, parameters: dict[str, str]) -> Any:
    """Substitutes a Template's parameters. A parameter without a default value stays as written."""
    match value:
        case str():
            return _PARAMETER.sub(lambda match: parameters.get(match[1], match[0]), value)
        case dict():
            return {key: _substituted(below, parameters) for key, below in value.items()}
        case list():
            return [_substituted(below, parameters) for below in value]
        case _:
            return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
