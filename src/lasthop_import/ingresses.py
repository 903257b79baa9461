"""Reads the Ingresses of a controller's classes. All systems use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.inputs import INGRESS, INGRESS_CLASS, Inputs
from lasthop_import.model import ServiceBackend
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings, System

CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
DEFAULT_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
WELL_KNOWN: Final = frozenset(
    (
        *("alb", "azure-application-gateway", "azure/application-gateway", "ambassador", "apisix", "cilium", "contour"),
        *("gce", "gce-internal", "gce-regional-external", "haproxy", "higress", "istio", "kong", "openshift-default"),
        *("tailscale", "traefik", "traefik-internal", "voyager"),
    )
)
"""Classes that belong to one controller by name. `nginx` is missing: two controllers use it."""
CLASS_UNKNOWN: Final = "class-unknown"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")
"""The values of Go's strconv.ParseBool, which most controllers use."""


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
        """Returns the present annotations with the prefix, without it."""
        return [name.removeprefix(self._prefix) for name in self.reader.value if name.startswith(self._prefix)]

    def text(self, name: str, default: str = "") -> str:
        """Returns a text without leading and trailing space; an empty text counts as absent."""
        return self.reader.text(self.key(name)).strip() or default

    def boolean(self, name: str, default: bool = False) -> bool:
        """Returns a Go boolean. Lists other values (`on`, `yes`), for which the controller uses the default."""
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
        text = f"is not a number, so the controller used {default}"
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
    """Hosts, the name of a Secret, which may be empty, and its source."""

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
        return tuple(dict.fromkeys(path.host for path in self.paths))


def class_of(document: Document) -> str:
    """Returns the class of an Ingress from the old annotation, or from the field."""
    values = (document.annotations.get(CLASS_ANNOTATION), document.spec.get("ingressClassName"))
    return next((value for value in values if isinstance(value, str) and value), "")


def claims(system: System, document: Document, controllers: Mapping[str, str]) -> bool:
    """Returns whether an object belongs to a system. An Ingress with a known IngressClass belongs to that controller."""
    if document.kind == INGRESS.kind and (controller := controllers.get(class_of(document))):
        return controller in system.controllers
    return system.claims(document)


def controllers_of(documents: Iterable[Document]) -> dict[str, str]:
    controllers = {}
    for document in documents:
        controller = document.spec.get("controller")
        if document.kind == INGRESS_CLASS.kind and isinstance(controller, str):
            controllers[document.bare_name] = controller
    return controllers


def note_namesake(ingress: FieldReader, prefixes: tuple[str, ...], other_prefixes: tuple[str, ...], system: str) -> None:
    """Lists an Ingress with the annotations of a controller of a similar name."""
    names = [str(name) for name in ingress.document.annotations]
    if any(name.startswith(other_prefixes) for name in names) and not any(name.startswith(prefixes) for name in names):
        text = f"its annotations belong to another controller, and have no effect here; try `lasthop import {system}`"
        ingress.note(Category.CHANGED, "other-controller", text, None, severity=NoteSeverity.HIGH)


def ingresses_of(inputs: Inputs, settings: ImportSettings, *controllers: str, known: tuple[str, ...] = ()) -> list[Document]:
    """Returns the Ingresses of a controller, oldest first, and skips all others. `known`: classes that the controller serves
    without an IngressClass; "" stands for Ingresses without a class."""
    return of_classes(inputs, settings, inputs.of(INGRESS), *controllers, known=known)


def of_classes(
    inputs: Inputs, settings: ImportSettings, documents: Sequence[Document], *controllers: str, known: tuple[str, ...] = ()
) -> list[Document]:
    """Returns the documents of a controller's classes. Their kinds have classes in the same way as Ingresses."""
    owners = _Classes(inputs, settings, controllers, known).owners(map(class_of, documents))
    for document in documents:
        name = class_of(document)
        if owners[name] is _Owner.OTHER:
            inputs.skip(document, "other-class", f"{_class_text(name)}, of another controller; see --ingress-class")
        elif owners[name] is _Owner.UNKNOWN:
            inputs.notes.append(class_unknown(document, owners))
    return [document for document in documents if owners[class_of(document)] is _Owner.OURS]


def class_unknown(document: Document, classes: Iterable[str]) -> Note:
    """Returns the note that the controller of an Ingress is unknown."""
    listing = ", ".join(sorted(name or "none" for name in classes))
    text = f"{_class_text(class_of(document))}, and the input does not show its controller; classes: {listing}; not imported"
    remedy = "Choose with --ingress-class NAME, or all; or add the IngressClasses to the input."
    return Note(Category.TODO, CLASS_UNKNOWN, text, SourceRef(document), remedy=remedy)


def _class_text(name: str) -> str:
    return f"its class is {name}" if name else "it has no class"


class _Owner(Enum):
    OURS = auto()
    OTHER = auto()
    UNKNOWN = auto()


class _Classes:
    """Finds the controller of an Ingress class: by --ingress-class, by its IngressClass, or by a well-known name."""

    def __init__(self, inputs: Inputs, settings: ImportSettings, controllers: tuple[str, ...], known: tuple[str, ...]) -> None:
        self._chosen = settings.ingress_classes
        self._known = known
        documents = inputs.of(INGRESS_CLASS)
        self._owners = {
            ingress_class.bare_name: _Owner.OURS if ingress_class.spec.get("controller") in controllers else _Owner.OTHER
            for ingress_class in documents
        }
        for ingress_class in documents:
            if ingress_class.annotations.get(DEFAULT_CLASS) == "true":
                self._owners[""] = self._owners[ingress_class.bare_name]

    def owners(self, names: Iterable[str]) -> dict[str, _Owner]:
        """Returns the owner of each class. A single class with an unknown owner counts as the controller's; among several,
        the user decides."""
        owners = {name: self._owner(name) for name in names}
        unknown = [name for name, owner in owners.items() if owner is _Owner.UNKNOWN]
        if len(unknown) == 1 and _Owner.OURS not in self._owners.values():
            owners[unknown[0]] = _Owner.OURS
        return owners

    def _owner(self, name: str) -> _Owner:
        if self._chosen:
            return _Owner.OURS if name in self._chosen or "all" in self._chosen else _Owner.OTHER
        if name in self._owners:
            return self._owners[name]
        if name in self._known:
            return _Owner.OURS
        # No controller serves an Ingress without a class if no class is the default.
        if name in WELL_KNOWN or self._known or (not name and self._owners):
            return _Owner.OTHER
        return _Owner.UNKNOWN


def read_ingress(inputs: Inputs, document: Document) -> IngressObject:
    """Reads an Ingress except its annotations."""
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
    tls = tuple((_hosts(entry), entry.text("secretName"), entry.source()) for entry in spec.children("tls"))
    default = _backend(spec.child("defaultBackend"), namespace) if "defaultBackend" in spec else None
    return IngressObject(reader, annotations, tuple(paths), default, tls)


def _hosts(entry: FieldReader) -> tuple[str, ...]:
    return tuple(host.lower() for host in entry.texts("hosts"))


def _backend(reader: FieldReader, namespace: str) -> ServiceBackend | None:
    if "resource" in reader:
        reader.cannot("resource", "only Services can be carried over as backends")
        return None
    service = reader.child("service")
    port = service.child("port")
    number, name = port.port("number"), port.text("name")
    if "name" not in service:
        reader.note(Category.CANNOT, "no-backend", "names no Service, so the path answers 503 before and 500 now", None)
        return None
    return ServiceBackend(namespace, service.text("name"), number or name or None)
