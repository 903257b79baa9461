"""Determines how Go's TLS client, as Traefik configures it, really verifies a backend.

There are four traps. Without serverName, Go verifies the dialled address, which is the Pod's IP. Traefik leaves out a CA that
it cannot read, and uses the system's store if none is left. It replaces a transport with impossible versions by the default.
And peerCertSANs are verified even where insecureSkipVerify seems to turn verification off.
[pkg/server/service/transport.go, pkg/tls/certificate.go, pkg/provider/kubernetes/crd/kubernetes.go]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from lasthop.engine.plan.tls_options import CIPHER_SUITES, TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    FileTrust,
    HopTLS,
    InlineTrust,
    MissingTrust,
    Name,
    NameKind,
    ObjectName,
    SystemTrust,
    Trust,
    TrustRef,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.traefik.static import Static

VERSIONS: Final = {"VersionTLS10": "1.0", "VersionTLS11": "1.1", "VersionTLS12": "1.2", "VersionTLS13": "1.3"}
_CIPHER: Final = re.compile(
    r"TLS_(?:RSA|ECDHE_RSA|ECDHE_ECDSA)_WITH_(?:RC4_128_SHA|AES_(?:128|256)_CBC_SHA|AES_128_(?:CBC|GCM)_SHA256|AES_256_GCM_SHA384)"
    r"|TLS_(?:RSA|ECDHE_RSA)_WITH_3DES_EDE_CBC_SHA|TLS_ECDHE_(?:RSA|ECDSA)_WITH_CHACHA20_POLY1305(?:_SHA256)?"
    r"|TLS_AES_128_GCM_SHA256|TLS_AES_256_GCM_SHA384|TLS_CHACHA20_POLY1305_SHA256|TLS_FALLBACK_SCSV"
)
"""Go's names of the ciphers."""
_CONNECTIONS: Final = {
    "maxIdleConnsPerHost": "idle connections are the gateway's own",
    "forwardingTimeouts": "the gateway has its own timeouts for connections; for requests, write timeouts in the route",
    "dialTimeout": "the gateway has its own connect timeout",
    "dialKeepAlive": "keep-alive probes are the gateway's own",
    "terminationDelay": "connections are closed when either side closes them",
    "proxyProtocol": "Traefik sent the PROXY protocol to backends; the new gateway does not",
}
DEFAULT_ONLY: Final = "so that Go's default holds: the system's CAs and the Pod's IP address as the name"


class Transport(msgspec.Struct, frozen=True):
    """The TLS settings of a ServersTransport, as Traefik applies them."""

    label: str
    skip: bool = False
    server_name: str = ""
    trust: tuple[Trust, ...] = ()
    """Empty means the system's CAs."""
    lost: str = ""
    """The problems of the configured CAs, if Traefik could read none of them."""
    sans: tuple[Name, ...] = ()
    client: ObjectName | None = None
    options: TLSOptions = TLSOptions()
    mesh: bool = False
    fault: str = ""
    """The reason why Traefik replaces it by Go's default."""


def default_transport(static: Static) -> Transport:
    trust = tuple(InlineTrust(ca, "rootCAs") if "-----BEGIN" in ca else FileTrust(ca) for ca in static.root_cas)
    return Transport("the default transport", static.skip_verify, trust=trust)


def read_transport(inputs: Inputs, reader: FieldReader) -> Transport:
    """Reads a ServersTransport, or the `tls` of a ServersTransportTCP."""
    spec = reader.child("spec")
    for key, text in _CONNECTIONS.items():
        spec.cannot(key, text)
    tls = spec.child("tls") if reader.document.kind == "ServersTransportTCP" else spec
    skip, server_name = tls.boolean("insecureSkipVerify"), tls.text("serverName").lower()
    trust, lost = _trust(inputs, tls)
    sans = _sans(tls)
    client = _client(tls)
    options, fault = _options(tls)
    mesh = "spiffe" in tls
    ids = tls.child("spiffe").texts("ids")
    tls.child("spiffe").cannot("trustDomain", "an identity of a whole trust domain cannot be required")
    if mesh and any((skip, server_name, trust, lost, sans, client, options != TLSOptions())):
        fault = "it has spiffe and other TLS fields, which exclude each other"
    names = tuple(Name(uri, NameKind.URI) for uri in ids) if mesh else sans
    return Transport(reader.document.name, skip, server_name, trust, lost, names, client, options, mesh, fault)


def _trust(inputs: Inputs, tls: FieldReader) -> tuple[tuple[Trust, ...], str]:
    """Returns the CAs. If references exist but none is usable, also returns their problems."""
    references = list(_named_cas(tls))
    trust: list[Trust] = []
    problems: list[str] = []
    for kind, name, key in references:
        ca = ca_of(inputs, tls, kind, name, key) if kind else "an entry of rootCAs names two objects"
        if not isinstance(ca, str):
            trust.append(ca)
            continue
        problems.append(ca)
        if kind and len(references) > 1:
            tls.note(Category.CHANGED, "root-ca-left-out", f"{ca}, so Traefik left it out", key)
    return tuple(trust), "" if trust else "; ".join(problems)


def _named_cas(tls: FieldReader) -> Iterator[tuple[str, str, str]]:
    """Yields kind, name and field of each CA reference. The kind is empty for an invalid entry that names two objects."""
    yield from (("Secret", name, "rootCAsSecrets") for name in tls.texts("rootCAsSecrets"))
    for entry in tls.children("rootCAs"):
        secret, config_map = entry.text("secret"), entry.text("configMap")
        if secret and config_map:
            entry.note(Category.CANNOT, "root-ca-left-out", "names a Secret and a ConfigMap, so Traefik left it out", None)
            yield "", "", ""
        elif secret or config_map:
            yield "Secret" if secret else "ConfigMap", secret or config_map, "rootCAs"


def ca_of(inputs: Inputs, reader: FieldReader, kind: str, name: str, key: str) -> TrustRef | str:
    """Returns a reference to the CA in a Secret or ConfigMap, or the reason why Traefik finds none.

    An object that is not in the input is assumed to have a CA: the policy fails closed while the object does not exist."""
    namespace = reader.namespace
    data = inputs.data(kind, namespace, name)
    if data is None:
        absent = inputs.absence(kind, namespace, name)
        text = f"{kind} {namespace}/{name} {absent}; it is taken to have a ca.crt"
        remedy = "Add it to the input: if it does not exist, Traefik trusted the system's CAs."
        reader.note(Category.TODO, "secret-missing", text, key, remedy=remedy, severity=NoteSeverity.WARNING)
        return TrustRef(kind, namespace, name)
    for ca_key in ("tls.ca", "ca.crt"):
        if data.get(ca_key):
            return TrustRef(kind, namespace, name, ca_key)
    if kind == "Secret" and len(data) == 1:
        return TrustRef(kind, namespace, name, next(iter(data)))
    return f"{kind} {namespace}/{name} has neither tls.ca nor ca.crt"


def _sans(tls: FieldReader) -> tuple[Name, ...]:
    names = []
    for entry in tls.children("peerCertSANs"):
        kind, value = entry.text("type"), entry.text("value")
        if kind in ("DNSName", "URI"):
            names.append(Name(value, NameKind.URI if kind == "URI" else NameKind.DNS))
        else:
            text = "is neither DNSName nor URI, so that nothing matched it"
            entry.note(Category.CANNOT, "san-type", text, "type")
            names.append(Name("", NameKind.DNS))
    if uri := tls.text("peerCertURI"):
        names.append(Name(uri, NameKind.URI))
    if any(name.kind is NameKind.URI and name.value != name.value.lower() for name in names):
        text = "URIs were compared without case, and are compared byte for byte now"
        tls.note(Category.CHANGED, "uri-case", text, "peerCertURI" if "peerCertURI" in tls else "peerCertSANs")
    return tuple(dict.fromkeys(names))


def _client(tls: FieldReader) -> ObjectName | None:
    secrets = tls.texts("certificatesSecrets")
    if len(secrets) > 1:
        text = "one of several client certificates was chosen by the backend's request; only the first is sent now"
        tls.note(Category.CHANGED, "several-client-certificates", text, "certificatesSecrets", severity=NoteSeverity.HIGH)
    return ObjectName(tls.namespace, secrets[0]) if secrets else None


def _options(tls: FieldReader) -> tuple[TLSOptions, str]:
    """Returns versions, ciphers and ALPN, and the reason why Traefik refuses the whole transport because of them, or ""."""
    alpn = ("http/1.1",) if tls.boolean("disableHTTP2") else ()
    lowest, highest = (_version(tls, key) for key in ("minVersion", "maxVersion"))
    fault = "minVersion needs a maxVersion above it" if lowest and (not highest or lowest >= highest) else ""
    suites = _cipher_suites(tls)
    if highest in ("1.0", "1.1"):
        text = f"TLS {highest} is the highest that was permitted, which is refused now"
        tls.note(Category.TIGHTENED, "tls-1.0-gone", text, "maxVersion")
    minimum = lowest if lowest == "1.3" else None
    maximum = highest if highest in ("1.2", "1.3") else "1.3"
    return TLSOptions(minimum, maximum, suites, alpn=alpn), fault


def _cipher_suites(tls: FieldReader) -> tuple[str, ...]:
    """Returns Envoy's names of the ciphers; none if Traefik or Envoy does not know one of them."""
    ciphers = tls.texts("cipherSuites")
    if unknown_to_traefik := [cipher for cipher in ciphers if not _CIPHER.fullmatch(cipher)]:
        text = f"Traefik does not know the cipher {unknown_to_traefik[0]}, so it used its own; the new gateway does, too"
        tls.note(Category.CHANGED, "ciphers", text, "cipherSuites")
        return ()
    names = {cipher: openssl_name(cipher) for cipher in ciphers}
    if unknown_to_envoy := [cipher for cipher in ciphers if names[cipher] is None]:
        text = f"Envoy does not have {', '.join(unknown_to_envoy)}; the new gateway uses its own ciphers"
        tls.note(Category.CANNOT, "ciphers", text, "cipherSuites")
        return ()
    return tuple(dict.fromkeys(filter(None, names.values())))


def _version(tls: FieldReader, key: str) -> str:
    text = tls.text(key)
    if text and text not in VERSIONS:
        tls.note(Category.CANNOT, "tls-version", "is not a version that Traefik knows, and was ignored", key)
    return VERSIONS.get(text, "")


def openssl_name(cipher: str) -> str | None:
    """Returns Envoy's name of a cipher; empty for TLS 1.3, which has no choice of ciphers; None if Envoy lacks it."""
    if cipher.startswith(("TLS_AES_", "TLS_CHACHA20_")):
        return ""
    name = cipher.removeprefix("TLS_").replace("_WITH_", "_").replace("_CBC_SHA", "_SHA")
    name = (
        name.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    )
    name = name.replace("_", "-").removeprefix("RSA-")
    return name if name in CIPHER_SUITES else None


def hop_tls(transport: Transport, dialled: str, *, default_known: bool = True) -> HopTLS:
    """Returns the TLS of a backend.

    `dialled` is the host name that Traefik dials; empty for the IP address of a Pod. `default_known`: whether the settings of
    the default transport are known."""
    label, name = transport.label, transport.server_name or dialled
    base = HopTLS(
        OldLevel.BROKEN,
        "",
        names=transport.sans or ((Name(name),) if name else ()),
        sni=name,
        trust=transport.trust,
        client_certificate=transport.client,
        options=transport.options,
    )

    def result(level: OldLevel, why: str, believed: OldLevel | None = None, reason: str = "") -> HopTLS:
        return msgspec.structs.replace(base, level=level, why=why, believed=believed, believed_reason=reason)

    unverified = transport.skip and not transport.sans
    if transport.fault:
        expected = OldLevel.UNVERIFIED if unverified else OldLevel.NAME
        return result(OldLevel.BROKEN, f"{label}: {transport.fault}, {DEFAULT_ONLY}", expected, "transport-replaced")
    if transport.mesh:
        return result(OldLevel.MESH, f"{label} uses SPIFFE")
    if not default_known:
        why = "no serversTransport is set, and the input lacks Traefik's static configuration, which defines the default"
        return result(OldLevel.UNKNOWN, f"{why} (--traefik-static, --traefik-insecure-skip-verify)")
    if unverified:
        return result(OldLevel.UNVERIFIED, f"{label} has insecureSkipVerify")
    if transport.lost:
        base = msgspec.structs.replace(base, trust=(MissingTrust(transport.lost),))
        why = f"{label}: {transport.lost}, so Traefik trusted the system's CAs instead"
        return result(OldLevel.BROKEN, why, OldLevel.NAME, "root-ca-ignored")
    base = msgspec.structs.replace(base, trust=transport.trust or (SystemTrust(),))
    return result(*_verified_name(transport, dialled))


def _verified_name(transport: Transport, dialled: str) -> tuple[OldLevel, str]:
    """Returns the level of verification of the name, and the setting that determines it."""
    label, server_name = transport.label, transport.server_name
    name = server_name or dialled
    if transport.sans and (transport.skip or name):
        level = OldLevel.URI if {name.kind for name in transport.sans} == {NameKind.URI} else OldLevel.NAME
        spite = ", which are verified in spite of insecureSkipVerify" if transport.skip else ""
        return level, f"{label} has peerCertSANs{spite}"
    if not name:
        return OldLevel.IP_NAME, f"{label} has no serverName, so the name had to be the Pod's IP address"
    return OldLevel.NAME, f"{label} has the serverName {server_name}" if server_name else f"the host {dialled}"
