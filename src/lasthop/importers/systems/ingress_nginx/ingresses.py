"""Reads Ingresses: which are the controller's, what their annotations say, and the ConfigMap behind the defaults."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.importers.documents import Document
from lasthop.importers.inputs import INGRESS, INGRESS_CLASS, Inputs
from lasthop.importers.model import ServiceBackend
from lasthop.importers.notes import Category, Severity, Source
from lasthop.importers.reader import Reader
from lasthop.importers.settings import Settings

PREFIX: Final = "nginx.ingress.kubernetes.io"
CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
CONTROLLER: Final = "k8s.io/ingress-nginx"
CONFIG_MAP: Final = "ingress-nginx-controller"
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


class Annotations:
    """Reads the annotations of one Ingress by their names without the prefix, as the controller does."""

    def __init__(self, reader: Reader, prefix: str) -> None:
        self.reader = reader
        self._prefix = f"{prefix}/"

    def __contains__(self, name: str) -> bool:
        return self.key(name) in self.reader

    def key(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def text(self, name: str, default: str = "") -> str:
        """Returns a text without the space around it; an empty one counts as absent."""
        return self.reader.text(self.key(name)).strip() or default

    def boolean(self, name: str, default: bool = False) -> bool:
        """Returns a Go boolean. Anything else (`on`, `yes`) makes nginx use the default, and is listed."""
        value = self.text(name)
        if not value or value in (*_TRUE, *_FALSE):
            return value in _TRUE if value else default
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

    def source(self, name: str) -> Source:
        return self.reader.source(self.key(name))

    def note(
        self, category: Category, reason: str, text: str, name: str, *, remedy: str = "", severity: Severity | None = None
    ) -> None:
        self.reader.note(category, reason, text, self.key(name), remedy=remedy, severity=severity)


class Config(msgspec.Struct, frozen=True):
    """The controller's ConfigMap, as far as it changes what an Ingress means."""

    ssl_redirect: bool = True
    force_ssl_redirect: bool = False
    hsts: str = "max-age=31536000; includeSubDomains"
    """The header; empty: none."""
    redirect_code: int = 308
    location_only: bool = False
    cross_namespace: bool = False
    body_size: str = "1m"


class PathOf(msgspec.Struct, frozen=True):
    host: str
    path: str
    path_type: str
    backend: ServiceBackend | None
    source: Source


class Ingress(msgspec.Struct, frozen=True):
    document: Document
    reader: Reader
    annotations: Annotations
    paths: tuple[PathOf, ...]
    default: ServiceBackend | None
    tls: tuple[tuple[tuple[str, ...], str], ...]
    """Hosts and the name of a Secret, which may be empty."""

    @property
    def namespace(self) -> str:
        return self.document.namespace

    @property
    def name(self) -> str:
        return self.document.bare_name

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.host for each in self.paths))


def read_ingresses(inputs: Inputs, settings: Settings) -> list[Ingress]:
    """Returns the controller's Ingresses, oldest first."""
    prefix = str(settings.flags.get("ingress-nginx-prefix") or PREFIX)
    classes = _classes(inputs, settings)
    found = []
    for document in inputs.of(INGRESS):
        name = class_of(document)
        if classes is not None and name not in classes:
            what = f"its class is {name}" if name else "it has no class"
            wanted = ", ".join(sorted(each for each in classes if each)) or "none"
            inputs.skip(document, "other-class", f"{what}, not {wanted}; see --ingress-class")
        else:
            found.append(_ingress(inputs.open(document), prefix))
    return found


def class_of(document: Document) -> str:
    """Returns the name of an Ingress's class: of the old annotation, or of the field."""
    annotations, spec = document.metadata.get("annotations"), document.value.get("spec")
    old = annotations.get(CLASS_ANNOTATION) if isinstance(annotations, dict) else None
    new = spec.get("ingressClassName") if isinstance(spec, dict) else None
    return next((each for each in (old, new) if isinstance(each, str) and each), "")


def is_named_nginx(document: Document) -> bool:
    """Returns whether the class is called as the controller's usually is."""
    name = class_of(document)
    return name == "nginx" or name.startswith(("nginx-", "ingress-nginx"))


def _classes(inputs: Inputs, settings: Settings) -> set[str] | None:
    """Returns the names of the controller's classes; None: all. An Ingress without a class has the name ""."""
    if settings.ingress_classes:
        return None if "all" in settings.ingress_classes else set(settings.ingress_classes)
    ours, default = set(), False
    for document in inputs.of(INGRESS_CLASS):
        spec = document.value.get("spec")
        if isinstance(spec, dict) and spec.get("controller") == CONTROLLER:
            ours.add(document.bare_name)
            marks = document.metadata.get("annotations")
            mark = marks.get("ingressclass.kubernetes.io/is-default-class") if isinstance(marks, dict) else None
            default = default or mark == "true"
    return {*ours, *([""] if default else [])} if ours else None


def _ingress(reader: Reader, prefix: str) -> Ingress:
    spec = reader.child("spec")
    spec.ignore("ingressClassName")
    annotations = reader.annotations()
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
    tls = tuple((_hosts(each), each.text("secretName")) for each in spec.children("tls"))
    default = _backend(spec.child("defaultBackend"), namespace) if "defaultBackend" in spec else None
    return Ingress(reader.document, reader, Annotations(annotations, prefix), tuple(paths), default, tls)


def _hosts(entry: Reader) -> tuple[str, ...]:
    return tuple(host.lower() for host in entry.texts("hosts"))


def _backend(reader: Reader, namespace: str) -> ServiceBackend | None:
    if "resource" in reader:
        reader.cannot("resource", "a backend that is no Service was never served by ingress-nginx")
        return None
    service = reader.child("service")
    port = service.child("port")
    number, name = port.port("number"), port.text("name")
    if "name" not in service:
        reader.note(Category.CANNOT, "no-backend", "names no Service, so the path answers 503 before and 500 now", None)
        return None
    return ServiceBackend(namespace, service.text("name"), number or name or None)


# --- the controller's ConfigMap --------------------------------------------------------------------------------------

_READ: Final = (
    "ssl-redirect",
    "force-ssl-redirect",
    "hsts",
    "hsts-max-age",
    "hsts-include-subdomains",
    "hsts-preload",
    "http-redirect-code",
    "proxy-ssl-location-only",
    "allow-cross-namespace-resources",
    "proxy-body-size",
)
_ACCESS: Final = (
    "whitelist-source-range",
    "denylist-source-range",
    "global-auth-url",
    "enable-modsecurity",
    "enable-owasp-modsecurity-crs",
    "modsecurity-snippet",
    "block-cidrs",
    "block-user-agents",
    "block-referers",
    "limit-req-status-code",
)


def read_config(inputs: Inputs, settings: Settings) -> Config:
    """Returns the controller's settings; those without an equivalent are listed one by one."""
    document = _config_map(inputs, settings)
    if document is None:
        return Config()
    data = inputs.open(document).child("data")
    values = {key: data.text(key).strip() for key in _READ if key in data}

    def boolean(key: str, default: bool) -> bool:
        value = values.get(key, "")
        return value in _TRUE if value in (*_TRUE, *_FALSE) else default

    for key in sorted(data.value):
        if key in _ACCESS:
            data.access_control(key, "a setting of the whole controller that is not carried over")
        elif key not in _READ:
            data.cannot(key, "a setting of the whole controller that has no equivalent")
    age = values.get("hsts-max-age") or "31536000"
    parts = [f"max-age={age}"]
    parts += ["includeSubDomains"] if boolean("hsts-include-subdomains", True) else []
    parts += ["preload"] if boolean("hsts-preload", False) else []
    code = values.get("http-redirect-code", "")
    return Config(
        ssl_redirect=boolean("ssl-redirect", True),
        force_ssl_redirect=boolean("force-ssl-redirect", False),
        hsts="; ".join(parts) if boolean("hsts", True) else "",
        redirect_code=int(code) if code in ("301", "302", "307", "308") else 308,
        location_only=boolean("proxy-ssl-location-only", False),
        cross_namespace=boolean("allow-cross-namespace-resources", False),
        body_size=values.get("proxy-body-size") or "1m",
    )


def _config_map(inputs: Inputs, settings: Settings) -> Document | None:
    named = str(settings.flags.get("ingress-nginx-configmap") or "")
    if named:
        namespace, _, name = named.rpartition("/")
        return inputs.find("ConfigMap", namespace or "default", name)
    found = [each for each in inputs.documents if each.kind == "ConfigMap" and each.bare_name == CONFIG_MAP]
    return found[0] if found else inputs.find("ConfigMap", "ingress-nginx", CONFIG_MAP)
