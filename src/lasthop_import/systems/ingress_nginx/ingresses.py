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
"""Annotation prefixes of NGINX Inc.'s controller, whose class is usually named nginx, too."""


class Ingress(IngressObject, frozen=True):
    annotations: Annotations
    """The controller's annotations."""


def read_ingresses(inputs: Inputs, settings: ImportSettings) -> list[Ingress]:
    """Returns the controller's Ingresses, oldest first."""
    prefix = str(settings.flags.get("ingress-nginx-prefix") or PREFIX)
    return [_ingress(inputs, document, prefix) for document in ingresses_of(inputs, settings, CONTROLLER)]


def is_named_nginx(document: Document) -> bool:
    """Returns whether an Ingress has one of the controller's usual class names."""
    name = class_of(document)
    return name == "nginx" or name.startswith(("nginx-", "ingress-nginx"))


def _ingress(inputs: Inputs, document: Document, prefix: str) -> Ingress:
    ingress = read_ingress(inputs, document)
    note_namesake(ingress.reader, (f"{prefix}/",), NAMESAKE, "nginx")
    annotations = Annotations(ingress.annotation_reader, prefix)
    return Ingress(ingress.reader, ingress.annotation_reader, ingress.paths, ingress.default, ingress.tls, annotations)
