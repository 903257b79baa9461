"""Reads Ingresses for all controllers: which have one of its classes, and what their specs say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.inputs import INGRESS, INGRESS_CLASS, Inputs
from lasthop_import.model import ServiceBackend
from lasthop_import.notes import Category, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings, System

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")
"""As Go's strconv.ParseBool, which most controllers use."""


class Annotations:
    """Reads the annotations of one Ingress by their names without the prefix, as the controller does."""

    def __init__(self, reader: FieldReader, prefix: str) -> None:
        self.reader = reader
        self._prefix = f"{prefix}/"

    def __contains__(self, name: str) -> bool:
        return self.key(name) in self.reader

    def key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def names(self) -> list[str]:
        """Returns the annotations that are there and have the prefix, without it."""
        return [name.removeprefix(self._prefix) for name in self.reader.value if name.startswith(self._prefix)]

    def text(self, name: str, default: str = "") -> str:
        """Returns a text without the space around it; an empty one counts as absent."""
        return self.reader.text(self.key(name)).strip() or default

    def boolean(self, name: str, default: bool = False) -> bool:
        """Returns a Go boolean. Anything else (`on`, `yes`) makes the controller use the default, and is listed."""
        value = self.text(name)
        if not value or value in (*TRUE, *FALSE):
            return value in TRUE if value else default
        text = f"is neither true nor false, so the controller used {str(default).lower()}"
        self.reader.note(Category.CANNOT, "not-a-boolean", text, self.key(name), remedy='Write "true" or "false".')
        return default

    def number(self, name: str, default: int) -> int:
        value = self.text(name)
        if not value or (value.isascii() and value.lstrip("-").isdigit()):
            return int(value) if value else default
        text = f"is no number, so the controller used {default}"
        self.reader.note(Category.CANNOT, "not-a-number", text, self.key(name), remedy="Write a number.")
        return default

    def source(self, name: str) -> SourceRef:
        return self.reader.source(self.key(name))

    def note(
        self, category: Category, reason: str, text: str, name: str, *, remedy: str = "", severity: NoteSeverity | None = None
    ) -> None:
        self.reader.note(category, reason, text, self.key(name), remedy=remedy, severity=severity)


class PathOf(msgspec.Struct, frozen=True):
    host: str
    path: str
    path_type: str
    backend: ServiceBackend | None
    source: SourceRef


class IngressObject(msgspec.Struct, frozen=True):
    reader: FieldReader
    annotation_reader: FieldReader
    paths: tuple[PathOf, ...]
    default: ServiceBackend | None
    tls: tuple[tuple[tuple[str, ...], str, SourceRef], ...]
    """Hosts, the name of a Secret, which may be empty, and where that is said."""

    @property
    def document(self) -> Document:
        return self.reader.document

    @property
    def namespace(self) -> str:
        return self.document.namespace

    @property
    def name(self) -> str:
        return self.document.bare_name

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.host for each in self.paths))


def class_of(document: Document) -> str:
    """Returns the name of an Ingress's class: of the old annotation, or of the field."""
    values = (document.annotations.get(CLASS_ANNOTATION), document.spec.get("ingressClassName"))
    return next((each for each in values if isinstance(each, str) and each), "")


def claims(system: System, document: Document, controllers: Mapping[str, str]) -> bool:
    """Returns whether an object is a system's. An Ingress whose IngressClass is known belongs to that controller."""
    if document.kind == INGRESS.kind and (controller := controllers.get(class_of(document))):
        return controller in system.controllers
    return system.claims(document)


def controllers_of(documents: Iterable[Document]) -> dict[str, str]:
    """Returns the controller of each IngressClass by name."""
    found = {}
    for document in documents:
        controller = document.spec.get("controller")
        if document.kind == INGRESS_CLASS.kind and isinstance(controller, str):
            found[document.bare_name] = controller
    return found


def note_namesake(ingress: FieldReader, own: tuple[str, ...], other: tuple[str, ...], system: str) -> None:
    """Lists an Ingress whose annotations are those of a controller with a similar name."""
    names = [str(name) for name in ingress.document.annotations]
    if any(name.startswith(other) for name in names) and not any(name.startswith(own) for name in names):
        text = f"its annotations are of another controller, and have no effect here; try `lasthop import {system}`"
        ingress.note(Category.CHANGED, "other-controller", text, None, severity=NoteSeverity.HIGH)


def ingresses_of(inputs: Inputs, settings: ImportSettings, *controllers: str, known: tuple[str, ...] = ()) -> list[Document]:
    """Returns the Ingresses of a controller, oldest first, and skips all others. `known`: classes that are its own without an
    IngressClass; "" among them means that an Ingress without a class is its own, too."""
    classes = _classes(inputs, settings, controllers, known)
    found = []
    for document in inputs.of(INGRESS):
        name = class_of(document)
        if classes is not None and name not in classes:
            what = f"its class is {name}" if name else "it has no class"
            wanted = ", ".join(sorted(each for each in classes if each)) or "none"
            inputs.skip(document, "other-class", f"{what}, not {wanted}; see --ingress-class")
        else:
            found.append(document)
    return found


def _classes(
    inputs: Inputs, settings: ImportSettings, controllers: tuple[str, ...], known: tuple[str, ...]
) -> set[str] | None:
    """Returns the names of a controller's classes; None: all. An Ingress without a class has the name ""."""
    if settings.ingress_classes:
        return None if "all" in settings.ingress_classes else set(settings.ingress_classes)
    ours = set(known)
    for document in inputs.of(INGRESS_CLASS):
        if document.spec.get("controller") in controllers:
            ours.add(document.bare_name)
            if document.annotations.get(DEFAULT_CLASS) == "true":
                ours.add("")
    return ours or None


def read_ingress(inputs: Inputs, document: Document) -> IngressObject:
    """Reads all of an Ingress but its annotations."""
    reader = inputs.open(document)
    spec, annotations = reader.child("spec"), reader.annotations()
    spec.ignore("ingressClassName")
    annotations.ignore(CLASS_ANNOTATION)
    namespace = reader.namespace
    paths = []
    for rule in spec.children("rules"):
        host = rule.text("host").lower()
        for path in rule.child("http").children("paths"):
            backend = _backend(path.child("backend"), namespace)
            paths.append(PathOf(host, path.text("path") or "/", path.text("pathType"), backend, path.source()))
        if "http" not in rule:
            rule.note(Category.SKIPPED, "no-paths", f"{host or 'the rule'} has no paths, so nothing is routed", None)
    tls = tuple((_hosts(each), each.text("secretName"), each.source()) for each in spec.children("tls"))
    default = _backend(spec.child("defaultBackend"), namespace) if "defaultBackend" in spec else None
    return IngressObject(reader, annotations, tuple(paths), default, tls)


def _hosts(entry: FieldReader) -> tuple[str, ...]:
    return tuple(host.lower() for host in entry.texts("hosts"))


def _backend(reader: FieldReader, namespace: str) -> ServiceBackend | None:
    if "resource" in reader:
        reader.cannot("resource", "a backend that is no Service cannot be carried over")
        return None
    service = reader.child("service")
    port = service.child("port")
    number, name = port.port("number"), port.text("name")
    if "name" not in service:
        reader.note(Category.CANNOT, "no-backend", "names no Service, so the path answers 503 before and 500 now", None)
        return None
    return ServiceBackend(namespace, service.text("name"), number or name or None)
