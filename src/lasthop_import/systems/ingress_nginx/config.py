"""Reads the controller's ConfigMap, which has the defaults of all Ingresses."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop_import.documents import Document
from lasthop_import.ingresses import FALSE, TRUE
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.unread import may_restrict

CONFIG_MAP: Final = "ingress-nginx-controller"
_CONFIG_MAPS: Final = (CONFIG_MAP, "nginx-configuration")
_STREAMS: Final = ("tcp-services", "udp-services", "ingress-nginx-tcp", "ingress-nginx-udp")
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
    "http-snippet",
    "server-snippet",
    "location-snippet",
)
_HARMLESS: Final = frozenset(
    (
        *("allow-snippet-annotations", "allow-backend-server-header", "disable-access-log", "access-log-path"),
        *("access-log-params", "http-access-log-path", "stream-access-log-path", "enable-access-log-for-default-backend"),
        *("proxy-real-ip-cidr", "enable-real-ip", "lua-shared-dicts", "server-tokens", "main-snippet"),
        *("nginx-status-ipv4-whitelist", "nginx-status-ipv6-whitelist"),
    )
)
"""Settings that do not restrict requests, despite their names."""


class ControllerConfig(msgspec.Struct, frozen=True):
    """The controller's settings that change the meaning of an Ingress."""

    ssl_redirect: bool = True
    force_ssl_redirect: bool = False
    hsts: str = "max-age=31536000; includeSubDomains"
    """The value of the header; "" means no header."""
    redirect_code: int = 308
    location_only: bool = False
    cross_namespace: bool = False
    body_size: str = "1m"


def read_config(inputs: Inputs, settings: ImportSettings) -> ControllerConfig:
    """Returns the controller's settings. Lists each setting without an equivalent."""
    _note_streams(inputs)
    values: dict[str, str] = {}
    for document in _config_maps(inputs, settings):
        data = inputs.open(document).child("data")
        values = {key: data.text(key).strip() for key in _READ if key in data} | values
        _note_settings(data)
    code = values.get("http-redirect-code", "")
    return ControllerConfig(
        ssl_redirect=_boolean(values, "ssl-redirect", True),
        force_ssl_redirect=_boolean(values, "force-ssl-redirect", False),
        hsts=_hsts(values) if _boolean(values, "hsts", True) else "",
        redirect_code=int(code) if code in ("301", "302", "307", "308") else 308,
        location_only=_boolean(values, "proxy-ssl-location-only", False),
        cross_namespace=_boolean(values, "allow-cross-namespace-resources", False),
        body_size=values.get("proxy-body-size") or "1m",
    )


def _note_settings(data: FieldReader) -> None:
    for key in sorted(data.value):
        if key in _ACCESS or (may_restrict(key) and key not in _HARMLESS):
            data.access_control(key, "a setting of the whole controller that is not carried over")
        elif key not in _READ:
            data.cannot(key, "a setting of the whole controller that has no equivalent")


def _boolean(values: dict[str, str], key: str, default: bool) -> bool:
    value = values.get(key, "")
    return value in TRUE if value in (*TRUE, *FALSE) else default


def _hsts(values: dict[str, str]) -> str:
    parts = [f"max-age={values.get('hsts-max-age') or '31536000'}"]
    parts += ["includeSubDomains"] if _boolean(values, "hsts-include-subdomains", True) else []
    parts += ["preload"] if _boolean(values, "hsts-preload", False) else []
    return "; ".join(parts)


def _config_maps(inputs: Inputs, settings: ImportSettings) -> list[Document]:
    """Returns the ConfigMap that the option names, else ConfigMaps with the names in the manifests or the Helm chart."""
    option = str(settings.flags.get("ingress-nginx-configmap") or "")
    namespace, _, name = option.rpartition("/") if option else ("ingress-nginx", "", CONFIG_MAP)
    document = inputs.find("ConfigMap", namespace or "default", name)
    likely = () if option else (document for document in _maps(inputs) if document.bare_name.endswith(_CONFIG_MAPS))
    return list(dict.fromkeys((*((document,) if document else ()), *likely)))


def _maps(inputs: Inputs) -> list[Document]:
    return [document for document in inputs.documents if document.kind == "ConfigMap"]


def _note_streams(inputs: Inputs) -> None:
    """Lists the ConfigMaps that expose TCP and UDP ports."""
    for document in _maps(inputs):
        if document.bare_name.endswith(_STREAMS) and document.value.get("data"):
            text = "the controller passed these ports on for TCP or UDP; the new gateway does not"
            remedy = "Write TCPRoutes or UDPRoutes."
            source = SourceRef(document, ("data",))
            note = Note(Category.CANNOT, "stream-services", text, source, remedy=remedy, severity=NoteSeverity.HIGH)
            inputs.notes.append(note)
