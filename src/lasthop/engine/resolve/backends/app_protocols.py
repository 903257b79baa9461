"""Detects TLS on ports of Services and ServiceImports, by `appProtocol` and by annotations of other gateways.

`appProtocol` never starts TLS, because it does not define what to verify. A port with a TLS protocol and without
BackendTLSPolicy is refused; a plaintext protocol is an explicit declaration."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.core import AnyService, ServicePort
from lasthop.base.api.kinds import SERVICE_GROUPS
from lasthop.base.api.meta import Key

H2C: Final = "kubernetes.io/h2c"
WS: Final = "kubernetes.io/ws"

PLAINTEXT: Final = frozenset(
    (
        *(H2C, WS, "h2c", "ws", "http", "http-alt", "www", "www-http"),
        *("amqp", "ftp", "imap", "ldap", "mqtt", "nntp", "pop3", "sip", "telnet"),
        *("domain", "syslog"),
    )
)
"""Plaintext protocols: Kubernetes' own names, and IANA names whose protocol over TLS has a separate name (https, wss, ldaps,
secure-mqtt)."""

TLS: Final = frozenset(
    (
        *("https", "https-alt", "wss", "tls", "ssl", "grpcs", "tls-sni"),
        *("amqps", "ftps", "imaps", "ldaps", "mqtts", "secure-mqtt", "nntps", "pop3s", "sips", "sip-tls", "telnets"),
        *("domain-s", "ircs-u", "msft-gc-ssl", "submissions", "smtps", "syslog-tls", "xmpps-client", "xmpps-server"),
    )
)
"""TLS protocols, also with the domain prefixes of other gateways. Without `http2`, `h2` and `grpc`, which mean TLS to some
gateways and plaintext to others."""


def is_plaintext(app_protocol: str) -> bool:
    return app_protocol.lower() in PLAINTEXT


def is_tls(app_protocol: str) -> bool:
    return app_protocol.lower().rpartition("/")[2] in TLS


HTTPS_PORT: Final = 443


def looks_like_tls(port: ServicePort) -> str:
    """Returns why a port without appProtocol probably serves TLS; empty if nothing indicates it."""
    if port.app_protocol:
        return ""
    if is_tls(port.name.lower().partition("-")[0]):
        return f"its name is {port.name}"
    return f"its number is {HTTPS_PORT}" if HTTPS_PORT in (port.port, port.target_port) else ""


_BY_PORT: Final = ("projectcontour.io/upstream-protocol.tls", "projectcontour.io/upstream-protocol.h2")
"""Contour: names or numbers of ports."""
_BY_PORT_NAME: Final = ("cloud.google.com/app-protocols", "service.alpha.kubernetes.io/app-protocols")
"""GKE: a JSON object of protocols by port name; HTTP2 means TLS too."""
_BY_VALUE: Final = (
    "traefik.ingress.kubernetes.io/service.serversscheme",
    "nginx.ingress.kubernetes.io/backend-protocol",
    "alb.ingress.kubernetes.io/backend-protocol",
    "konghq.com/protocol",
)
"""Annotations whose value is a protocol, for all ports."""
_BY_PRESENCE: Final = (
    "service.beta.openshift.io/serving-cert-secret-name",
    "service.alpha.openshift.io/serving-cert-secret-name",
)
"""OpenShift issues a serving certificate for the Pods of the Service."""
_BY_NAME: Final = ("nginx.org/ssl-services",)
"""NGINX: names of Services, on its Ingresses."""
_BY_SWITCH: Final = ("haproxy.org/server-ssl",)


def annotation_for_tls(service: AnyService, port: ServicePort) -> str:
    """Returns the name of an annotation that enables TLS on a port at another gateway; empty if there is none."""
    annotations = service.metadata.annotations
    if is_plaintext(port.app_protocol):
        return ""
    for name, value in annotations:
        if (
            (name in _BY_PORT and {port.name, str(port.port)} & _words(value))
            or (name in _BY_PORT_NAME and _by_port_name(value).get(port.name, "").upper() in ("HTTPS", "HTTP2"))
            or (name in _BY_VALUE and is_tls(value.strip()))
            or (name in _BY_PRESENCE and value)
            or (name in _BY_NAME and service.metadata.name in _words(value))
            or (name in _BY_SWITCH and value.strip().lower() == "true")
        ):
            return name
    return ""


def _words(value: str) -> set[str]:
    return {word for item in value.split(",") if (word := item.strip())}


def _by_port_name(value: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        return {}


def policy_to_write(service: Key, port: ServicePort) -> str:
    """Describes the namespace and the targetRefs of a BackendTLSPolicy for a port."""
    section = f", sectionName: {port.name}" if port.name else ""
    group = SERVICE_GROUPS[service.kind] or '""'
    target = f"{{group: {group}, kind: {service.kind}, name: {service.name}{section}}}"
    return f"in namespace {service.namespace} with targetRefs [{target}]"
