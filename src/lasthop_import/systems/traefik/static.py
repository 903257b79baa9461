"""Reads Traefik's static configuration, which no manifest has: ports, default transport, cross-namespace references."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lasthop.edge.admission.yaml import parse
from lasthop_import.documents import mapping, texts
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.settings import Flag, ImportSettings
from lasthop_import.values import port_number

FLAGS: Final = (
    Flag("--traefik-static", "Traefik's static configuration (traefik.yml).", "FILE", file=True),
    Flag(
        "--traefik-entrypoint",
        "Port of an entry point; NAME=PORT/tls if it serves TLS by itself, NAME=PORT/udp for UDP. Known without it: web=80 "
        "and websecure=443/tls.",
        "NAME=PORT",
        multiple=True,
    ),
    Flag("--traefik-insecure-skip-verify", "Traefik runs with --serversTransport.insecureSkipVerify."),
)


class EntryPoint(msgspec.Struct, frozen=True):
    name: str
    port: int
    tls: bool = False
    udp: bool = False
    default: bool = True
    """Whether routes that name no entry point are served here."""
    known: bool = True
    """Whether it comes from the static configuration or an option, not from Traefik's convention."""
    redirect: str = ""
    """The scheme that all of its requests are redirected to."""


class Static(msgspec.Struct, frozen=True):
    entry_points: dict[str, EntryPoint]
    known: bool = False
    """Whether the static configuration is known. Without it, the settings of the default transport are unknown."""
    skip_verify: bool = False
    root_cas: tuple[str, ...] = ()
    cross_namespace: bool = False
    external_names: bool = False
    native_lb: bool = False

    @property
    def defaults(self) -> tuple[EntryPoint, ...]:
        """The entry points of routes without entry points."""
        return tuple(point for point in self.entry_points.values() if point.default and not point.udp)


CONVENTION: Final = {
    "web": EntryPoint("web", 80, known=False),
    "websecure": EntryPoint("websecure", 443, tls=True, known=False),
}


def read_static(inputs: Inputs, settings: ImportSettings) -> Static:
    value = _static_file(inputs, settings.flags.get("traefik-static"))
    entry_points = _entry_points(value) or dict(CONVENTION)
    for text in settings.flags.get("traefik-entrypoint") or ():
        point = _entry_point(str(text))
        if point is None:
            message = f"{text!r} is not NAME=PORT, NAME=PORT/tls or NAME=PORT/udp, and is not used"
            inputs.notes.append(Note(Category.TODO, "traefik-entrypoint", message, severity=NoteSeverity.HIGH))
        else:
            entry_points[point.name] = point
    for name, point in mapping(value.get("entryPoints")).items():
        if middlewares := texts(mapping(mapping(point).get("http")).get("middlewares")):
            message = (
                f"entry point {name} applies {', '.join(middlewares)[:100]} to all of its routes, and it may restrict access"
            )
            inputs.notes.append(Note(Category.ACCESS_CONTROL, "entrypoint-middlewares", message))
        if options := mapping(mapping(mapping(point).get("http")).get("tls")).get("options"):
            message = f"entry point {name} applies TLSOption {options} to its routes, which may require client certificates"
            inputs.notes.append(Note(Category.ACCESS_CONTROL, "entrypoint-tls-options", message))
    transport = mapping(value.get("serversTransport"))
    providers = [mapping(mapping(value.get("providers")).get(name)) for name in ("kubernetesCRD", "kubernetesIngress")]
    skip = bool(settings.flags.get("traefik-insecure-skip-verify"))

    def provided(setting: str) -> bool:
        return any(provider.get(setting) is True for provider in providers)

    return Static(
        entry_points,
        known=bool(value) or skip,
        skip_verify=skip or transport.get("insecureSkipVerify") is True,
        root_cas=texts(transport.get("rootCAs")),
        cross_namespace=provided("allowCrossNamespace"),
        external_names=provided("allowExternalNameServices"),
        native_lb=provided("nativeLBByDefault"),
    )


def _static_file(inputs: Inputs, content: object) -> dict[str, Any]:
    if not isinstance(content, bytes) or not content:
        return {}
    parsed = parse(content)
    document = parsed.documents[0] if parsed.documents and not parsed.mistakes else None
    if isinstance(document, dict):
        return document
    text = "the file of --traefik-static is not a YAML mapping, and is not used"
    remedy = "Give the traefik.yml of the old gateway."
    inputs.notes.append(Note(Category.TODO, "traefik-static", text, remedy=remedy, severity=NoteSeverity.HIGH))
    return {}


def _entry_point(text: str) -> EntryPoint | None:
    name, _, value = text.partition("=")
    number, _, mode = value.partition("/")
    port = port_number(number)
    if not name or not port or mode not in ("", "tls", "udp"):
        return None
    return EntryPoint(name, port, tls=mode == "tls" or (name == "websecure" and not mode), udp=mode == "udp")


def _entry_points(static: dict[str, Any]) -> dict[str, EntryPoint]:
    entry_points = {
        name: mapping(value) for name, value in mapping(static.get("entryPoints")).items() if isinstance(name, str)
    }
    chosen = any(entry_point.get("asDefault") is True for entry_point in entry_points.values())
    points: dict[str, EntryPoint] = {}
    for name, entry_point in entry_points.items():
        address, _, protocol = str(entry_point.get("address") or "").partition("/")
        if port := port_number(address.rpartition(":")[2]):
            http = mapping(entry_point.get("http"))
            to = mapping(mapping(http.get("redirections")).get("entryPoint"))
            points[name] = EntryPoint(
                name,
                port,
                tls="tls" in http,
                udp=protocol == "udp",
                default=entry_point.get("asDefault") is True if chosen else name not in ("traefik", "metrics"),
                redirect=str(to.get("scheme") or "https") if to.get("to") else "",
            )
    return points
