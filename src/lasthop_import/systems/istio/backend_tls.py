"""Determines how an Istio gateway verifies a backend.

There are three traps. A missing `mode` means DISABLE. `sni` without subjectAltNames turns the verification of names off,
because Istio takes names from the Host only together with the SNI. Before 1.21, SIMPLE without a CA verified nothing.
[pilot/pkg/networking/core/cluster_tls.go: constructUpstreamTLS, setAutoSniAndAutoSanValidation]
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import FileTrust, HopTLS, MissingTrust, Name, NameKind, ObjectName, SystemTrust, Trust, TrustRef
from lasthop_import.notes import Category, Note, NoteSeverity
from lasthop_import.systems.istio.destination_rules import ClientTLS, Effective
from lasthop_import.systems.istio.kinds import CRL_KEYS, Mesh
from lasthop_import.values import is_host

CA_KEYS = ("cacert", "ca.crt")
CONFIG_MAP = "configmap://"


class DestinationUse(NamedTuple):
    """The properties of a request and a backend port that determine TLS together with the DestinationRule."""

    http: bool
    """True for HTTP requests, which have a Host; False for connections."""
    hosts: tuple[str, ...]
    """The possible Hosts of requests, after a rewrite; empty means any."""
    http2: bool
    tls_port: bool
    """Whether the port's name or appProtocol is HTTPS or TLS."""
    external: bool
    """Whether the backend is a ServiceEntry."""
    external_names: tuple[str, ...]
    """The subjectAltNames of the ServiceEntry."""
    namespace: str
    """The namespace of the Service or ServiceEntry."""
    gateway_namespace: str


def hop_tls(inputs: Inputs, effective: Effective, context: DestinationUse, mesh: Mesh) -> HopTLS | None:
    tls = effective.tls
    if tls is None or not tls.starts:
        return _without_tls(inputs, effective, context, mesh)
    if tls.mode == "ISTIO_MUTUAL":
        return HopTLS(OldLevel.MESH, "tls.mode is ISTIO_MUTUAL: certificates of the mesh, which the new gateway does not have")
    if tls.mode not in ("SIMPLE", "MUTUAL"):
        return HopTLS(OldLevel.BROKEN, f"tls.mode {tls.mode!r} is unknown to Istio")
    return _verified(inputs, tls, context, mesh)


def _without_tls(inputs: Inputs, effective: Effective, context: DestinationUse, mesh: Mesh) -> HopTLS | None:
    """Returns the TLS of a hop on which the gateway does not start TLS."""
    tls = effective.tls
    if tls is not None and not tls.mode and _has_other_fields(tls):
        intended = _verified(inputs, msgspec.structs.replace(tls, mode="SIMPLE"), context, mesh)
        why = "tls has no mode, which is DISABLE: all of its other fields are ignored, and nothing was encrypted"
        return HopTLS(
            OldLevel.BROKEN,
            why,
            intended.level,
            "mode-missing",
            intended.names,
            intended.sni,
            intended.trust,
            was_plaintext=True,
        )
    if effective.lost is not None:
        starts_tls = effective.lost.mode in ("SIMPLE", "MUTUAL")
        believed = _verified(inputs, effective.lost, context, mesh).level if starts_tls else OldLevel.MESH
        return HopTLS(OldLevel.PLAINTEXT, effective.why_lost, believed, effective.reason)
    return _by_port(tls, context, mesh)


def _by_port(tls: ClientTLS | None, context: DestinationUse, mesh: Mesh) -> HopTLS | None:
    """Returns the TLS that the mesh and the port determine without a DestinationRule that starts TLS."""
    if tls is None and not context.external and (reason := mesh.meshed(context.namespace)):
        why = f"no DestinationRule changes it, so it was mesh mTLS to Pods with a proxy, and {reason}"
        return HopTLS(OldLevel.MESH, why, was_plaintext=True)
    if tls is None and not context.external and (why := mesh.unknown(context.namespace)):
        return HopTLS(OldLevel.UNKNOWN, why, was_plaintext=True)
    if context.http and context.tls_port:
        why = "the port declares HTTPS or TLS, but only a DestinationRule makes a gateway start TLS, so it sent plaintext"
        level = OldLevel.BROKEN if context.external else OldLevel.PLAINTEXT
        return HopTLS(level, why, OldLevel.HOST_NAME, "https-port-without-tls", was_plaintext=True)
    return None


def _has_other_fields(tls: ClientTLS) -> bool:
    return bool(tls.sni or tls.names or tls.credential or tls.ca_file or any(tls.client_files) or tls.skip)


def _verified(inputs: Inputs, tls: ClientTLS, context: DestinationUse, mesh: Mesh) -> HopTLS:
    base = _configured(inputs, tls, context, mesh)
    names = base.names
    if tls.mode == "MUTUAL" and not tls.credential and not all(tls.client_files):
        why = "tls.mode is MUTUAL without a client certificate and key, so Istio used plaintext"
        return _with_level(base, OldLevel.BROKEN, why, was_plaintext=True)
    likely = names or ((Name(tls.sni),) if tls.sni else tuple(map(Name, context.hosts)))
    unchecked = _unchecked(tls, base, likely, context, mesh)
    if unchecked is not None:
        return unchecked
    if not mesh.version:
        _note_version(inputs, tls, named=bool(names or tls.sni))
    if names:
        return _named(inputs, base, tls, context, mesh)
    return _without_names(tls, msgspec.structs.replace(base, names=likely), context, mesh)


def _configured(inputs: Inputs, tls: ClientTLS, context: DestinationUse, mesh: Mesh) -> HopTLS:
    """Returns the configured TLS settings, without the level of verification."""
    trust = _trust(inputs, tls, context)
    return HopTLS(
        OldLevel.NAME,
        "",
        names=tuple(_name(name) for name in tls.names or (context.external_names if context.external else ())),
        sni=tls.sni,
        sni_of_host=context.http and not mesh.old,
        trust=trust,
        revocation=_revocation(inputs, tls, trust),
        client_certificate=_client(inputs, tls, context),
        options=_options(context, mesh),
    )


def _unchecked(tls: ClientTLS, base: HopTLS, likely: tuple[Name, ...], context: DestinationUse, mesh: Mesh) -> HopTLS | None:
    """Returns the TLS if Istio does not verify the chain, or has no CA. `likely`: names that the certificate may have."""
    believed = _level_of_names(base.names) or (OldLevel.NAME if tls.sni else OldLevel.HOST_NAME)
    if tls.skip:
        why = "tls.insecureSkipVerify is true"
        if tls.names or tls.ca_file:
            return _with_level(base, OldLevel.UNVERIFIED, why, believed, "skip-beats-names", names=likely)
        return _with_level(base, OldLevel.UNVERIFIED, why, names=likely)
    if mesh.old and not tls.credential and not tls.ca_file:
        why = "tls.caCertificates is not set, and before Istio 1.21 nothing was verified without it"
        return _with_level(base, OldLevel.UNVERIFIED, why, believed, "no-ca-before-1.21", names=likely, trust=())
    if base.trust == (_without_ca(context.gateway_namespace, tls.credential),):
        why = f"the Secret of credentialName {tls.credential} has no CA, so all connections failed"
        return _with_level(base, OldLevel.BROKEN, why, names=likely)
    return None


def _without_names(tls: ClientTLS, base: HopTLS, context: DestinationUse, mesh: Mesh) -> HopTLS:
    """Returns the TLS without subjectAltNames, which verifies at most the request's Host."""
    if tls.sni:
        why = f"tls.sni is {tls.sni} without subjectAltNames, which leaves only the chain to be checked"
        return _with_level(base, OldLevel.CHAIN, why, OldLevel.NAME, "sni-disables-name-check")
    if not context.http:
        why = "a connection has no Host, so that without sni and subjectAltNames only the chain is checked"
        return _with_level(base, OldLevel.CHAIN, why, OldLevel.NAME, "no-name-for-connections")
    if mesh.old:
        why = "before Istio 1.21 neither SNI nor names were taken from the request's Host"
        return _with_level(base, OldLevel.CHAIN, why, OldLevel.HOST_NAME, "no-auto-san-before-1.21")
    return _with_level(base, OldLevel.HOST_NAME, f"tls.mode is {tls.mode}: SNI and name are the request's Host")


def _named(inputs: Inputs, base: HopTLS, tls: ClientTLS, context: DestinationUse, mesh: Mesh) -> HopTLS:
    level = _level_of_names(base.names) or OldLevel.NAME
    for name in base.names:
        if name.kind is NameKind.DNS and not is_host(name.value.lower()):
            text = f"subjectAltNames: {name.value[:100]} is neither a DNS name nor a URI, and cannot be checked"
            inputs.notes.append(Note(Category.CANNOT, "name-not-writable", text, tls.source, severity=NoteSeverity.HIGH))
    if tls.names:
        return _with_level(base, level, "tls.subjectAltNames are checked")
    if context.http and not tls.sni and not mesh.old:
        text = "the certificate needed a name of the ServiceEntry and the request's Host; now only one of the former"
        inputs.notes.append(Note(Category.LOOSENED, "and-became-or", text, tls.source))
    return _with_level(base, level, "subjectAltNames of the ServiceEntry are checked")


def _with_level(
    base: HopTLS,
    level: OldLevel,
    why: str,
    believed: OldLevel | None = None,
    reason: str = "",
    *,
    names: tuple[Name, ...] | None = None,
    trust: tuple[Trust, ...] | None = None,
    was_plaintext: bool = False,
) -> HopTLS:
    return msgspec.structs.replace(
        base,
        level=level,
        why=why,
        believed=believed,
        believed_reason=reason,
        names=base.names if names is None else names,
        trust=base.trust if trust is None else trust,
        was_plaintext=was_plaintext,
    )


def _name(value: str) -> Name:
    return Name(value, NameKind.URI if "://" in value else NameKind.DNS)


def _level_of_names(names: tuple[Name, ...]) -> OldLevel | None:
    if not names:
        return None
    return OldLevel.URI if all(name.kind is NameKind.URI for name in names) else OldLevel.NAME


def _options(context: DestinationUse, mesh: Mesh) -> TLSOptions:
    """Returns ALPN h2 for HTTP/2 and gRPC ports. Istio offers other ports no ALPN, so they answer with HTTP/1.1."""
    alpn = (("h2",) if context.http2 else ("http/1.1",)) if context.http else ()
    return msgspec.structs.replace(mesh.options, alpn=alpn)


def _note_version(inputs: Inputs, tls: ClientTLS, *, named: bool) -> None:
    """Lists the behaviour that depends on Istio's version, where the system's store is used."""
    if tls.credential or tls.ca_file not in ("", "system") or (tls.ca_file and named):
        return
    if tls.ca_file:
        text = "names are those of the request's Host since Istio 1.21, which is assumed; before, only the chain was verified"
    else:
        text = "without a CA, Istio trusts the system's store since 1.21, which is assumed; before, nothing was verified"
    remedy = "If it is older, pass --istio-version."
    inputs.notes.append(Note(Category.CHANGED, "version-assumed", text, tls.source, remedy=remedy))


def _trust(inputs: Inputs, tls: ClientTLS, context: DestinationUse) -> tuple[Trust, ...]:
    if tls.credential.startswith(CONFIG_MAP):
        return (_config_map(inputs, tls),)
    if not tls.credential:
        return (SystemTrust(),) if tls.ca_file in ("", "system") else (FileTrust(tls.ca_file),)
    return (_credential(inputs, context.gateway_namespace, tls.credential),)


def _credential(inputs: Inputs, namespace: str, credential: str) -> Trust:
    """Returns the CA from the Secret with the suffix -cacert, else from the Secret itself."""
    names = (f"{credential}-cacert", credential)
    secrets = {name: inputs.data("Secret", namespace, name) for name in names}
    for name, data in secrets.items():
        for key in CA_KEYS:
            if data is not None and key in data:
                return TrustRef("Secret", namespace, name, key)
    if any(data is not None for data in secrets.values()):
        return _without_ca(namespace, credential)
    absent = inputs.absence("Secret", namespace, credential)
    return MissingTrust(f"Secret {namespace}/{credential}, or {names[0]}, {absent}")


def _without_ca(namespace: str, credential: str) -> MissingTrust:
    return MissingTrust(f"Secret {namespace}/{credential} has no CA: neither cacert nor ca.crt")


def _config_map(inputs: Inputs, tls: ClientTLS) -> Trust:
    namespace, name = tls.source.document.namespace, tls.credential.removeprefix(CONFIG_MAP).rpartition("/")[2]
    data = inputs.data("ConfigMap", namespace, name) or {}
    key = next((ca_key for ca_key in CA_KEYS if ca_key in data), "ca.crt")
    return TrustRef("ConfigMap", namespace, name, key)


def _revocation(inputs: Inputs, tls: ClientTLS, trust: tuple[Trust, ...]) -> tuple[TrustRef | FileTrust, ...]:
    """Returns the revocation lists: a file of the proxy, and lists in the same object as the CA."""
    lists: list[TrustRef | FileTrust] = [FileTrust(tls.crl)] if tls.crl else []
    for ca in trust:
        if isinstance(ca, TrustRef):
            data = inputs.data(ca.kind, ca.namespace, ca.name) or {}
            keys = [key for key in CRL_KEYS if key in data][:1]
            lists += [TrustRef(ca.kind, ca.namespace, ca.name, key) for key in keys]
    return tuple(lists)


def _client(inputs: Inputs, tls: ClientTLS, context: DestinationUse) -> ObjectName | None:
    if tls.mode != "MUTUAL":
        return None
    if not tls.credential or tls.credential.startswith(CONFIG_MAP):
        if all(tls.client_files):
            text = f"the client certificate is in files of the proxy ({tls.client_files[0][:100]}); no Secret is known"
            remedy = "Create a Secret with tls.crt and tls.key, and name it as clientCertificate in decisions.yaml."
            inputs.notes.append(Note(Category.TODO, "client-certificate-file", text, tls.source, remedy=remedy))
        return None
    name = ObjectName(context.gateway_namespace, tls.credential)
    data = inputs.data("Secret", *name)
    if data is not None and "tls.crt" not in data:
        text = f"Secret {name} has the client certificate under other keys than tls.crt and tls.key"
        remedy = "Write these keys into the Secret."
        inputs.notes.append(Note(Category.TODO, "secret-keys", text, tls.source, remedy=remedy))
    return name
