"""Defines the common model: every importer returns it, and the writers see nothing else.

    Listener   where clients connect, with which certificate
    Rule       which requests, their filters, and their hops
    Hop        a connection to a backend, with the level of its TLS

Filters, timeouts, retries and sessions are the structs of `base/api/routes.py`, which the written routes use, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.routes import HTTPRouteFilter, HTTPRouteRetry, HTTPRouteTimeouts, SessionPersistence
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.levels import OldLevel
from lasthop_import.notes import SourceRef


class ObjectName(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# --- trust -----------------------------------------------------------------------------------------------------------


class TrustRef(msgspec.Struct, frozen=True):
    """CA certificates in a ConfigMap, Secret or ClusterTrustBundle."""

    kind: str
    namespace: str
    name: str
    key: str = "ca.crt"

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


class InlineTrust(msgspec.Struct, frozen=True):
    pem: str
    origin: str
    """Its place in the input, for a comment."""


class FileTrust(msgspec.Struct, frozen=True):
    """A file in the old proxy; `--ca PATH=FILE` supplies it."""

    path: str


class ServiceCA(msgspec.Struct, frozen=True):
    """The CA of OpenShift's serving certificates."""


class SystemTrust(msgspec.Struct, frozen=True):
    """The CAs of the host or image. Written only if the old gateway trusted them."""


class MissingTrust(msgspec.Struct, frozen=True):
    """The object in the source does not exist, or contains no CA."""

    problem: str


Trust = TrustRef | InlineTrust | FileTrust | ServiceCA | SystemTrust | MissingTrust


# --- hops ------------------------------------------------------------------------------------------------------------


class ServiceBackend(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    port: int | str | None
    """As in the input: a number, or the name of a port; None: the Service's only port."""
    protocol: str = "TCP"
    """Or UDP, which has no TLS."""


class HostBackend(msgspec.Struct, frozen=True):
    """An external host, which becomes an XBackend."""

    namespace: str
    name: str
    """Name of the object to write."""
    hostname: str
    port: int
    protocol: str = ""
    """A protocol of XBackend: HTTP11, H2C, GRPC."""


class AddressBackend(msgspec.Struct, frozen=True):
    """IP addresses, which become a Service without a selector and an EndpointSlice."""

    namespace: str
    name: str
    port: int
    port_name: str
    addresses: tuple[tuple[str, int], ...]
    app_protocol: str = ""


Backend = ServiceBackend | HostBackend | AddressBackend


class NameKind(StrEnum):
    DNS = "Hostname"
    URI = "URI"


class Name(msgspec.Struct, frozen=True, order=True):
    """A name that the certificate may have."""

    value: str
    kind: NameKind = NameKind.DNS


class HopTLS(msgspec.Struct, frozen=True):
    level: OldLevel
    why: str
    """The setting of the source that decides the level, for example `proxy-ssl-verify is off`."""
    believed: OldLevel | None = None
    """The level that its author probably assumes, if it is higher."""
    believed_reason: str = ""
    """The reason of `believed` in kebab-case, for example `grpc-not-verified`."""
    names: tuple[Name, ...] = ()
    """Any one suffices. For HOST_NAME, the hostnames of the route, which may be wildcards."""
    sni: str = ""
    """The server name that was sent, if it was fixed; empty: none, or the request's Host."""
    trust: tuple[Trust, ...] = ()
    """The CAs of the certificate's chain. If nothing was checked: a CA that was configured nevertheless, which the report
    proposes."""
    client_certificate: ObjectName | None = None
    options: TLSOptions = TLSOptions()
    was_plaintext: bool = False
    """The configured TLS had no effect, or the input does not show it; a decision may keep plaintext."""
    cn_fallback: bool = False
    """The old gateway accepted a certificate whose only name is the CN."""
    sni_of_host: bool = False
    """The SNI was the request's Host, as always for HOST_NAME."""
    revocation: tuple[TrustRef | FileTrust, ...] = ()
    """Revocation lists that the old gateway checked."""
    shown_to_all: bool = False
    """Whether the old gateway presented the client certificate to all of its TLS backends, like a Gateway."""
    by_section: tuple[tuple[str, HopTLS], ...] = ()
    """For a Service that is not in the input: the TLS of its ports by name, from policies."""

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal for hops that one policy can serve."""
        names = tuple(sorted(self.names))
        return (self.level, names, self.sni, self.trust, self.revocation, self.options, self.by_section)


class ImportedRetryBudget(msgspec.Struct, frozen=True, order=True):
    """The share of retries among the requests to a backend."""

    percent: int
    at_least: int
    """Retries at a time that are always allowed."""


class ImportedHop(msgspec.Struct, frozen=True):
    source: SourceRef
    backend: Backend
    tls: HopTLS | None = None
    """None: plaintext."""
    weight: int = 1
    h2c: bool = False
    filters: tuple[HTTPRouteFilter, ...] = ()
    permitted: bool = True
    """Whether the old gateway permitted the reference, if it leads to another namespace."""
    budget: ImportedRetryBudget | None = None

    @property
    def level(self) -> OldLevel:
        return self.tls.level if self.tls else OldLevel.PLAINTEXT


# --- rules -----------------------------------------------------------------------------------------------------------


class PathKind(StrEnum):
    EXACT = "exact"
    SEGMENT = "segment"
    """A prefix of whole segments, as PathPrefix."""
    STRING = "string"
    """A prefix of characters: /foo also matches /foobar."""
    REGEX = "regex"
    """RE2, matched against the whole path."""


class PathMatch(msgspec.Struct, frozen=True):
    kind: PathKind
    value: str


class ImportedValueMatch(msgspec.Struct, frozen=True):
    name: str
    value: str
    regex: bool = False


class ImportedMatch(msgspec.Struct, frozen=True):
    path: PathMatch | None = None
    headers: tuple[ImportedValueMatch, ...] = ()
    query: tuple[ImportedValueMatch, ...] = ()
    method: str = ""


class ImportedMirror(msgspec.Struct, frozen=True):
    hop: ImportedHop
    percent: int = 100


class Auth(msgspec.Struct, frozen=True):
    """A server that authorizes each request."""

    hop: ImportedHop
    grpc: bool = False
    path: str = ""
    """A prefix of the request's own path."""
    headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    body_bytes: int = 0


class RouteKind(StrEnum):
    HTTP = "HTTPRoute"
    GRPC = "GRPCRoute"
    TLS = "TLSRoute"
    TCP = "TCPRoute"
    UDP = "UDPRoute"


class ListenerKey(NamedTuple):
    gateway: ObjectName | None
    """None: the Gateway that the command line names."""
    port: int
    protocol: str
    hostname: str


class ImportedRule(msgspec.Struct, frozen=True):
    """One rule of a route. Rules with the same kind, namespace, route, hostnames and listeners become one object, in order."""

    source: SourceRef
    namespace: str
    route: str
    """The name of the route object."""
    listeners: tuple[ListenerKey, ...]
    hostnames: tuple[str, ...] = ()
    kind: RouteKind = RouteKind.HTTP
    matches: tuple[ImportedMatch, ...] = ()
    filters: tuple[HTTPRouteFilter, ...] = ()
    hops: tuple[ImportedHop, ...] = ()
    mirrors: tuple[ImportedMirror, ...] = ()
    auth: Auth | None = None
    timeouts: HTTPRouteTimeouts = HTTPRouteTimeouts()
    retry: HTTPRouteRetry | None = None
    persistence: SessionPersistence | None = None
    name: str = ""
    refused: str = ""
    """Why it cannot be written, for example `the condition is negated`: the report lists its hops as unused."""

    closed: bool = False
    """Its access control is lost, so it gets no traffic until a decision opens it."""

    @property
    def all_hops(self) -> tuple[ImportedHop, ...]:
        return (*self.hops, *(mirror.hop for mirror in self.mirrors), *((self.auth.hop,) if self.auth else ()))


# --- listeners -------------------------------------------------------------------------------------------------------


class HiddenKey:
    """Hides a private key from messages and logs."""

    __slots__ = ("_content",)

    def __init__(self, content: str) -> None:
        self._content = content

    def reveal(self) -> str:
        return self._content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HiddenKey) and other._content == self._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __repr__(self) -> str:
        return "(not shown)"


class SecretCertificate(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class InlineCertificate(msgspec.Struct, frozen=True):
    """A certificate with its key in the object itself: a Secret is written only with --with-secrets."""

    namespace: str
    name: str
    """Of the Secret to write."""
    chain: str
    key: HiddenKey


class ForeignCertificate(msgspec.Struct, frozen=True):
    """A certificate that cannot be copied: another party holds it, or it is the old gateway's default."""

    reason: str


Certificate = SecretCertificate | InlineCertificate | ForeignCertificate


class ClientValidation(msgspec.Struct, frozen=True):
    """Verification of client certificates. A Gateway verifies all clients of a port in one way."""

    trust: tuple[TrustRef, ...]
    optional: bool = False
    revocation: tuple[TrustRef | FileTrust, ...] = ()
    """Revocation lists for clients' certificates."""


class ImportedListener(msgspec.Struct, frozen=True):
    source: SourceRef
    port: int
    protocol: str
    """HTTP, HTTPS, TLS, TCP or UDP."""
    hostname: str = ""
    certificates: tuple[Certificate, ...] = ()
    passthrough: bool = False
    clients: ClientValidation | None = None
    gateway: ObjectName | None = None
    """None: the Gateway that the command line names."""
    routes_from: tuple[str, ...] = ()
    """Namespaces whose routes may attach; empty: all namespaces with such routes."""

    @property
    def key(self) -> ListenerKey:
        return ListenerKey(self.gateway, self.port, self.protocol, self.hostname)


def keys_of(listeners: Iterable[ImportedListener]) -> tuple[ListenerKey, ...]:
    return tuple(listener.key for listener in listeners)


class Imported(msgspec.Struct, frozen=True):
    """The result of an importer. Notes are in the Inputs."""

    listeners: tuple[ImportedListener, ...] = ()
    rules: tuple[ImportedRule, ...] = ()
    hops: tuple[ImportedHop, ...] = ()
    """Hops of routes that are copied, not built from rules."""
    objects: tuple[tuple[SourceRef, Json], ...] = ()
    """Gateway API objects of the input, with necessary changes."""
    gateways: tuple[ObjectName, ...] = ()
    """Gateways in `objects`, whose client certificate the writer may set."""

    def joined(self, other: Imported) -> Imported:
        return Imported(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))
