"""Reads the controller's Ingresses and their annotations."""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.ingresses import Annotations, IngressObject, class_of, ingresses_of, note_namesake, read_ingress
from lasthop_import.inputs import Inputs
from lasthop_import.settings import ImportSettings

PREFIX: Final = "nginx.ingress.kubernetes.io"
CONTROLLER: Final = "k8s.io/ingress-nginx"
NAMESAKE: Final = ("nginx.org/", "nginx.com/")
"""Annotations of the other controller whose class is usually called nginx."""


class Ingress(IngressObject, frozen=True):
    annotations: Annotations
    """Those of the controller."""


def read_ingresses(inputs: Inputs, settings: ImportSettings) -> list[Ingress]:
    """Returns the controller's Ingresses, oldest first."""
    prefix = str(settings.flags.get("ingress-nginx-prefix") or PREFIX)
    return [_ingress(inputs, document, prefix) for document in ingresses_of(inputs, settings, CONTROLLER)]


def is_named_nginx(document: Document) -> bool:
    """Returns whether the class is called as the controller's usually is."""
    name = class_of(document)
    return name == "nginx" or name.startswith(("nginx-", "ingress-nginx"))


def _ingress(inputs: Inputs, document: Document, prefix: str) -> Ingress:
    found = read_ingress(inputs, document)
    note_namesake(found.reader, (f"{prefix}/",), NAMESAKE, "nginx")
    annotations = Annotations(found.annotation_reader, prefix)
    return Ingress(found.reader, found.annotation_reader, found.paths, found.default, found.tls, annotations)
