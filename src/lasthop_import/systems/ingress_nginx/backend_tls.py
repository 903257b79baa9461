"""Determines how nginx really verifies a backend.

The controller's template has two traps. It writes `proxy_ssl_*` only with a CA, regardless of the annotations. For gRPC, nginx
obeys `grpc_ssl_*`, but the template always writes `proxy_ssl_*`. [internal/ingress/annotations/proxyssl/main.go,
rootfs/etc/nginx/template/nginx.tmpl]
"""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.ingresses import Annotations
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import HopTLS, MissingTrust, Name, ObjectName, TrustRef
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.openssl import tls_options
from lasthop_import.systems.ingress_nginx.config import ControllerConfig
from lasthop_import.systems.ingress_nginx.ingresses import Ingress

PLAIN, TLS, GRPC, GRPC_TLS = "HTTP", "HTTPS", "GRPC", "GRPCS"
UNKNOWN_TLS = "unknown"
"""A protocol that the controller does not know, but that looks like TLS."""
PROTOCOLS: Final = (PLAIN, TLS, "AUTO_HTTP", GRPC, GRPC_TLS, "FCGI")
SECRET = "proxy-ssl-secret"
ALL: Final = (
    SECRET,
    "proxy-ssl-verify",
    "proxy-ssl-name",
    "proxy-ssl-server-name",
    "proxy-ssl-verify-depth",
    "proxy-ssl-protocols",
    "proxy-ssl-ciphers",
)


class ProxySSL(msgspec.Struct, frozen=True):
    """The proxy_ssl_* settings that the template writes for one Ingress."""

    owner: str
    """The Ingress's name, such as `Ingress obs/grafana`."""
    secret: ObjectName
    ca: bool
    """The Secret has a CA, or is not in the input. Without a CA the template writes no proxy_ssl_*."""
    client: bool
    """The Secret has a certificate and key."""
    verify: bool
    name: str
    server_name: bool
    options: TLSOptions
    denied: str = ""
    """The reason why the location answers 503."""


class BackendAnnotations(msgspec.Struct, frozen=True):
    """The TLS annotations of one Ingress, whether or not nginx obeys them."""

    ssl: ProxySSL | None
    """None if proxy-ssl-secret is missing; nginx then ignores all other annotations."""
    seems: str
    """The value of proxy-ssl-verify, if it seems to require verification: `on`, but also `On` or `true`."""
    name: str


def protocol(annotations: Annotations) -> str:
    """Returns the protocol to the backends. As in the controller, case and surrounding space do not matter."""
    value = annotations.text("backend-protocol", PLAIN).upper()
    if value in PROTOCOLS:
        return value
    text = "is not a protocol of the controller, so it used HTTP"
    annotations.note(Category.CHANGED, "unknown-protocol", text, "backend-protocol")
    return UNKNOWN_TLS if any(word in value for word in ("HTTPS", "GRPCS", "TLS", "SSL")) else PLAIN


def backend_annotations(inputs: Inputs, ingress: Ingress, config: ControllerConfig) -> BackendAnnotations:
    annotations = ingress.annotations
    verify, name = annotations.text("proxy-ssl-verify"), annotations.text("proxy-ssl-name")
    server_name, secret = annotations.text("proxy-ssl-server-name"), annotations.text(SECRET)
    options = _options(annotations) if secret else TLSOptions()
    _note_depth(annotations, limited=bool(secret) and verify == "on")
    seems = "" if verify.lower() in ("off", "false", "no", "0") else verify
    if not secret:
        return BackendAnnotations(None, seems, name)
    namespace, _, bare = secret.rpartition("/")
    denied = _denied(namespace, ingress, config)
    data = None if denied else _secret(inputs, annotations, namespace, bare)
    if data is not None and not data.keys() & {"ca.crt", "tls.crt"}:
        denied = f"Secret {namespace}/{bare} has neither a certificate nor a CA"
    ssl = ProxySSL(
        owner=ingress.document.name,
        secret=ObjectName(namespace, bare),
        ca=data is None or "ca.crt" in data,
        client=data is not None and data.keys() >= {"tls.crt", "tls.key"},
        verify=verify == "on",
        name=name,
        server_name=server_name == "on",
        options=options,
        denied=denied,
    )
    return BackendAnnotations(ssl, seems, name)


def _note_depth(annotations: Annotations, *, limited: bool) -> None:
    if limited and "proxy-ssl-verify-depth" in annotations:
        text = "the new gateway does not limit the length of certificate chains"
        annotations.note(Category.LOOSENED, "depth-dropped", text, "proxy-ssl-verify-depth")
    for name in ("proxy-ssl-verify-depth", "proxy-ssl-protocols", "proxy-ssl-ciphers"):
        annotations.reader.ignore(annotations.key(name))


def _secret(inputs: Inputs, annotations: Annotations, namespace: str, name: str) -> dict[str, bytes] | None:
    """Returns the content of the Secret. Lists a Secret that is not in the input."""
    data = inputs.data("Secret", namespace, name)
    if data is None:
        absent = inputs.absence("Secret", namespace, name)
        text = f"the Secret {absent}; it is taken to have a ca.crt and no client certificate"
        remedy = "Add it to the input: without a ca.crt nothing was verified, and with tls.crt it was shown to the backend."
        annotations.note(Category.TODO, "secret-missing", text, SECRET, remedy=remedy, severity=NoteSeverity.WARNING)
    return data


def _denied(namespace: str, ingress: Ingress, config: ControllerConfig) -> str:
    """Returns the reason why the controller does not read a Secret in this namespace, or ""."""
    if not namespace:
        return "proxy-ssl-secret must be namespace/name"
    if namespace != ingress.namespace and not config.cross_namespace:
        return f"proxy-ssl-secret is in namespace {namespace}, which the controller does not allow"
    return ""


def _options(annotations: Annotations) -> TLSOptions:
    """Returns the configured versions and ciphers, without nginx's defaults for an Ingress with a Secret (only TLS 1.2)."""
    result = tls_options(annotations.text("proxy-ssl-protocols"), annotations.text("proxy-ssl-ciphers"))
    if result.lost_ciphers:
        text = "an expression, or ciphers that Envoy does not have; the new gateway uses its own"
        annotations.note(Category.CANNOT, "ciphers", text, "proxy-ssl-ciphers")
    return result.options


def hop_tls(backend_protocol: str, annotations: BackendAnnotations, server: ProxySSL | None) -> HopTLS | None:
    """Returns the TLS of a location: from its own Ingress, else inherited from the first Ingress of the host."""
    if backend_protocol in _BY_PROTOCOL:
        return _BY_PROTOCOL[backend_protocol]
    ssl, inherited = annotations.ssl, ""
    if ssl is not None and ssl.denied:
        return HopTLS(OldLevel.BROKEN, f"{ssl.denied}, so the location answered 503")
    if (ssl is None or not ssl.ca) and server is not None:
        ssl, inherited = server, f", inherited from {server.owner}"
    believed = OldLevel.NAME if annotations.name else OldLevel.CHAIN
    if backend_protocol == GRPC_TLS:
        return _grpc(annotations, ssl, believed, inherited)
    if ssl is None or not ssl.ca:
        return _unverified(annotations, ssl, believed)
    return _proxied(annotations, ssl, believed, inherited)


_BY_PROTOCOL: Final = {
    PLAIN: None,
    GRPC: None,
    UNKNOWN_TLS: HopTLS(
        OldLevel.PLAINTEXT,
        "backend-protocol is not a protocol of the controller, so it used plaintext",
        OldLevel.UNVERIFIED,
        "unknown-protocol",
    ),
    "AUTO_HTTP": HopTLS(
        OldLevel.BROKEN, "backend-protocol AUTO_HTTP: TLS for requests that came over TLS, plaintext for others"
    ),
}
"""The TLS of protocols that ignore all other settings."""


def _grpc(annotations: BackendAnnotations, ssl: ProxySSL | None, believed: OldLevel, inherited: str) -> HopTLS:
    why = f"backend-protocol GRPCS: nginx obeys grpc_ssl_*, which the controller never writes{inherited}"
    seemed = believed if annotations.seems or (ssl is not None and ssl.verify) else None
    trust = _trust(ssl) if ssl is not None and ssl.ca else ()
    options = TLSOptions(alpn=("h2",))
    return HopTLS(
        OldLevel.UNVERIFIED, why, seemed, "grpc-not-verified", _names(annotations.name), trust=trust, options=options
    )


def _proxied(annotations: BackendAnnotations, ssl: ProxySSL, believed: OldLevel, inherited: str) -> HopTLS:
    """Returns the TLS that proxy_ssl_* with a CA sets. `inherited`: a text that names the Ingress of the settings, or ""."""
    client, sni = ssl.secret if ssl.client else None, ssl.name if ssl.server_name else ""
    options = msgspec.structs.replace(ssl.options, alpn=())
    if not ssl.verify:
        misled = bool(annotations.seems) and not inherited
        why = f"proxy-ssl-verify is {annotations.seems!r}, not exactly on" if misled else f"proxy-ssl-verify is off{inherited}"
        seemed, reason = (believed, "verify-not-on") if misled else (None, "")
        return HopTLS(OldLevel.UNVERIFIED, why, seemed, reason, _names(ssl.name), sni, _trust(ssl), client, options)
    if not ssl.name:
        why = f"proxy-ssl-verify is on without proxy-ssl-name, so the name had to be upstream_balancer{inherited}"
        return HopTLS(OldLevel.BROKEN, why, None, "", (), "", _trust(ssl), client, options)
    why = f"proxy-ssl-verify is on, with proxy-ssl-name {ssl.name}{inherited}"
    return HopTLS(OldLevel.NAME, why, None, "", _names(ssl.name), sni, _trust(ssl), client, options, cn_fallback=True)


def _unverified(annotations: BackendAnnotations, ssl: ProxySSL | None, believed: OldLevel) -> HopTLS:
    if ssl is None:
        why, reason = "there is no proxy-ssl-secret", "ca-was-ignored"
        trust: tuple[MissingTrust, ...] = ()
        if annotations.seems:
            why = "proxy-ssl-verify is ignored without proxy-ssl-secret"
    else:
        why, reason = f"Secret {ssl.secret} has no ca.crt, so nothing of proxy-ssl is in force", "secret-without-ca"
        trust = (MissingTrust(f"Secret {ssl.secret} has no ca.crt"),)
    return HopTLS(
        OldLevel.UNVERIFIED, why, believed if annotations.seems else None, reason, _names(annotations.name), trust=trust
    )


def _names(name: str) -> tuple[Name, ...]:
    return (Name(name),) if name else ()


def _trust(ssl: ProxySSL) -> tuple[TrustRef, ...]:
    return (TrustRef("Secret", ssl.secret.namespace, ssl.secret.name),)
