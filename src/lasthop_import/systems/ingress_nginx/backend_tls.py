"""Determines how nginx really verifies a backend.

Two traps are in the controller's template. `proxy_ssl_*` is written only beside a CA, regardless of the annotations; and
for gRPC it is written too, where nginx obeys `grpc_ssl_*`, which never is. [internal/ingress/annotations/proxyssl/main.go,
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
"""A protocol that the controller does not know, and whose author means TLS."""
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
    """The proxy_ssl_* of one Ingress, as the template writes them."""

    owner: str
    """`Ingress obs/grafana`."""
    secret: ObjectName
    ca: bool
    """The Secret has a CA, or is not in the input; without one nothing is written."""
    client: bool
    """It has a certificate and key too."""
    verify: bool
    name: str
    server_name: bool
    options: TLSOptions
    denied: str = ""
    """Why the location answers 503."""


class BackendAnnotations(msgspec.Struct, frozen=True):
    """The TLS annotations of one Ingress, whether or not nginx obeys them."""

    ssl: ProxySSL | None
    """None: proxy-ssl-secret is missing, so that all the others are ignored."""
    seems: str
    """The value of proxy-ssl-verify, if it seems to require verification: `on`, but also `On` or `true`."""
    name: str


def protocol(annotations: Annotations) -> str:
    """Returns the protocol to the backends; as the controller, in any case and with space around it."""
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
        text = "how long a chain may be is not limited any more"
        annotations.note(Category.LOOSENED, "depth-dropped", text, "proxy-ssl-verify-depth")
    for rest in ("proxy-ssl-verify-depth", "proxy-ssl-protocols", "proxy-ssl-ciphers"):
        annotations.reader.ignore(annotations.key(rest))


def _secret(inputs: Inputs, annotations: Annotations, namespace: str, name: str) -> dict[str, bytes] | None:
    """Returns the content of the Secret, and lists one that is not there."""
    data = inputs.data("Secret", namespace, name)
    if data is None:
        absent = inputs.absence("Secret", namespace, name)
        text = f"the Secret {absent}; it is taken to have a ca.crt and no client certificate"
        remedy = "Add it to the input: without a ca.crt nothing was verified, and with tls.crt it was shown to the backend."
        annotations.note(Category.TODO, "secret-missing", text, SECRET, remedy=remedy, severity=NoteSeverity.WARNING)
    return data


def _denied(namespace: str, ingress: Ingress, config: ControllerConfig) -> str:
    """Returns why the controller does not read the Secret in this namespace."""
    if not namespace:
        return "proxy-ssl-secret must be namespace/name"
    if namespace != ingress.namespace and not config.cross_namespace:
        return f"proxy-ssl-secret is in namespace {namespace}, which the controller does not allow"
    return ""


def _options(annotations: Annotations) -> TLSOptions:
    """Returns the configured versions and ciphers; nginx's own defaults beside a Secret (only TLS 1.2) are not kept."""
    found = tls_options(annotations.text("proxy-ssl-protocols"), annotations.text("proxy-ssl-ciphers"))
    if found.lost_ciphers:
        text = "an expression, or ciphers that Envoy does not have; the new gateway uses its own"
        annotations.note(Category.CANNOT, "ciphers", text, "proxy-ssl-ciphers")
    return found.options


def hop_tls(spoken: str, own: BackendAnnotations, server: ProxySSL | None) -> HopTLS | None:
    """Returns the TLS of a location: of its own Ingress, or of the first Ingress of the host, which is inherited."""
    if spoken in _BY_PROTOCOL:
        return _BY_PROTOCOL[spoken]
    ssl, inherited = own.ssl, ""
    if ssl is not None and ssl.denied:
        return HopTLS(OldLevel.BROKEN, f"{ssl.denied}, so the location answered 503")
    if (ssl is None or not ssl.ca) and server is not None:
        ssl, inherited = server, f", inherited from {server.owner}"
    believed = OldLevel.NAME if own.name else OldLevel.CHAIN
    if spoken == GRPC_TLS:
        return _grpc(own, ssl, believed, inherited)
    if ssl is None or not ssl.ca:
        return _unverified(own, ssl, believed)
    return _proxied(own, ssl, believed, inherited)


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
"""The TLS of protocols for which no other setting counts."""


def _grpc(own: BackendAnnotations, ssl: ProxySSL | None, believed: OldLevel, inherited: str) -> HopTLS:
    why = f"backend-protocol GRPCS: nginx obeys grpc_ssl_*, which the controller never writes{inherited}"
    seemed = believed if own.seems or (ssl is not None and ssl.verify) else None
    trust = _trust(ssl) if ssl is not None and ssl.ca else ()
    options = TLSOptions(alpn=("h2",))
    return HopTLS(OldLevel.UNVERIFIED, why, seemed, "grpc-not-verified", _names(own.name), trust=trust, options=options)


def _proxied(own: BackendAnnotations, ssl: ProxySSL, believed: OldLevel, inherited: str) -> HopTLS:
    """Returns the TLS by proxy_ssl_* with a CA; `inherited`: from which Ingress."""
    client, sni = ssl.secret if ssl.client else None, ssl.name if ssl.server_name else ""
    options = msgspec.structs.replace(ssl.options, alpn=())
    if not ssl.verify:
        misled = bool(own.seems) and not inherited
        why = f"proxy-ssl-verify is {own.seems!r}, not exactly on" if misled else f"proxy-ssl-verify is off{inherited}"
        seemed, reason = (believed, "verify-not-on") if misled else (None, "")
        return HopTLS(OldLevel.UNVERIFIED, why, seemed, reason, _names(ssl.name), sni, _trust(ssl), client, options)
    if not ssl.name:
        why = f"proxy-ssl-verify is on without proxy-ssl-name, so the name had to be upstream_balancer{inherited}"
        return HopTLS(OldLevel.BROKEN, why, None, "", (), "", _trust(ssl), client, options)
    why = f"proxy-ssl-verify is on, with proxy-ssl-name {ssl.name}{inherited}"
    return HopTLS(OldLevel.NAME, why, None, "", _names(ssl.name), sni, _trust(ssl), client, options, cn_fallback=True)


def _unverified(own: BackendAnnotations, ssl: ProxySSL | None, believed: OldLevel) -> HopTLS:
    if ssl is None:
        why, reason = "there is no proxy-ssl-secret", "ca-was-ignored"
        trust: tuple[MissingTrust, ...] = ()
        if own.seems:
            why = "proxy-ssl-verify is ignored without proxy-ssl-secret"
    else:
        why, reason = f"Secret {ssl.secret} has no ca.crt, so nothing of proxy-ssl is in force", "secret-without-ca"
        trust = (MissingTrust(f"Secret {ssl.secret} has no ca.crt"),)
    return HopTLS(OldLevel.UNVERIFIED, why, believed if own.seems else None, reason, _names(own.name), trust=trust)


def _names(name: str) -> tuple[Name, ...]:
    return (Name(name),) if name else ()


def _trust(ssl: ProxySSL) -> tuple[TrustRef, ...]:
    return (TrustRef("Secret", ssl.secret.namespace, ssl.secret.name),)
