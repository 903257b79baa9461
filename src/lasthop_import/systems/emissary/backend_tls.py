"""Determines how Emissary verifies a backend: at most by the chain, and only if a TLSContext has a certificate of its own.

Emissary never checks names. It refuses a TLSContext with a CA and without a certificate ("cannot validate client certs
without TLS termination"). Envoy then uses no TLSContext: connections that its author believes to be verified are not, or not
even encrypted.
[ir/ircluster, ir/irtlscontext and envoy/v3/v3tls in its Python part]
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lasthop.engine.plan.tls_options import CIPHER_SUITES, OPTIONS, VERSIONS, TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import FileTrust, HopTLS, MissingTrust, Name, ObjectName, Trust, TrustRef
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.kinds import EmissaryObjects
from lasthop_import.systems.emissary.services import scheme

CURVES = next(option.values for option in OPTIONS if option.field == "curves")
ROOT_KEY = "root-cert.pem"
CRL_KEY = "crl.pem"
CLIENTS_LOST = "clients needed a certificate, which the new gateway does not require"


class TLSContext(msgspec.Struct, frozen=True):
    reader: FieldReader
    problem: str
    """Why Emissary does not use it."""
    trust: tuple[Trust, ...]
    revocation: tuple[TrustRef, ...]
    client: ObjectName | None
    client_file: str
    sni: str
    options: TLSOptions


class Contexts:
    def __init__(self, contexts: dict[str, TLSContext]) -> None:
        self._contexts = contexts
        self._used: set[str] = set()

    def find(self, name: str) -> TLSContext | None:
        self._used.add(name)
        return self._contexts.get(name)

    def note_unused(self) -> None:
        for name, context in self._contexts.items():
            if name not in self._used:
                context.reader.note(Category.SKIPPED, "context-not-used", "no Mapping or Host names it", "spec")

    # --- hops --------------------------------------------------------------------------------------------------------

    def hop_tls(self, reader: FieldReader, key: str, *, grpc: bool = False) -> tuple[HopTLS | None, bool]:
        """Returns the TLS of a Mapping with its service in the field `key`, and whether its default port is 443."""
        service_scheme, named = _scheme(reader, key), reader.raw("tls")
        if named is not None and not isinstance(named, str | bool):
            reader.note(Category.CANNOT, "wrong-type", "must be the name of a TLSContext", "tls", severity=NoteSeverity.HIGH)
        alpn = TLSOptions(alpn=("h2",)) if grpc else TLSOptions()
        if named is True:
            return HopTLS(OldLevel.UNVERIFIED, "tls is true, which is TLS without any settings", options=alpn), True
        if not isinstance(named, str) or not named:
            return _without_context(service_scheme, alpn), service_scheme == "https"
        context = self.find(named)
        if context is None or context.problem:
            return _unusable(service_scheme, named, context, alpn), service_scheme == "https"
        if service_scheme == "http":
            reader.note(Category.CHANGED, "tls-despite-http", "TLS is used all the same, because of tls", key)
        return _used(context, named, alpn if grpc else None), True


def _scheme(reader: FieldReader, key: str) -> str:
    service_scheme = scheme(reader.text(key))
    if service_scheme not in ("", "http", "https"):
        text = "has a scheme that Emissary does not know; it used plaintext, or TLS if there is a TLSContext"
        reader.note(Category.CHANGED, "unknown-scheme", text, key)
    return service_scheme


def _without_context(service_scheme: str, options: TLSOptions) -> HopTLS | None:
    if service_scheme != "https":
        return None
    why = "the service is https:// without a TLSContext: no SNI, and any certificate is accepted"
    return HopTLS(OldLevel.UNVERIFIED, why, OldLevel.CHAIN, "https-not-verified", options=options)


def _unusable(service_scheme: str, named: str, context: TLSContext | None, alpn: TLSOptions) -> HopTLS:
    """Returns the TLS without the TLSContext: unverified TLS with https://, else plaintext."""
    problem = context.problem if context else "does not exist"
    reason = "ca-was-ignored" if context and context.trust else "unknown-tlscontext"
    trust = context.trust if context else ()
    sni = context.sni if context else ""
    names = (Name(sni),) if sni else ()
    if service_scheme == "https":
        why = f"TLSContext {named} {problem}, so that it is not used, and nothing is verified"
        return HopTLS(OldLevel.UNVERIFIED, why, OldLevel.CHAIN, reason, names, trust=trust, options=alpn)
    why = f"TLSContext {named} {problem}, and the service is not https://, so that nothing was encrypted"
    if reason == "unknown-tlscontext":
        reason = "unknown-tlscontext-plaintext"
    return HopTLS(OldLevel.BROKEN, why, OldLevel.CHAIN, reason, names, trust=trust, was_plaintext=True)


def _used(context: TLSContext, named: str, grpc: TLSOptions | None) -> HopTLS:
    options = context.options
    if grpc is not None and not options.alpn:
        options = msgspec.structs.replace(options, alpn=grpc.alpn)
    names = (Name(context.sni),) if context.sni else ()
    why = f"TLSContext {named} has no CA"
    base = HopTLS(
        OldLevel.UNVERIFIED,
        why,
        names=names,
        sni=context.sni,
        trust=context.trust,
        revocation=context.revocation,
        client_certificate=context.client,
        options=options,
    )
    if context.client_file:
        text = f"the client certificate is in a file of Emissary ({context.client_file[:100]}); no Secret is known"
        remedy = "Create a Secret with tls.crt and tls.key, and name it as clientCertificate in decisions.yaml."
        context.reader.child("spec").note(Category.TODO, "client-certificate-file", text, "cert_chain_file", remedy=remedy)
    if not context.trust:
        return base
    why = f"TLSContext {named} has a CA; Emissary never checks names"
    believed, reason = (OldLevel.NAME, "names-never-checked") if context.sni else (None, "")
    return msgspec.structs.replace(base, level=OldLevel.CHAIN, why=why, believed=believed, believed_reason=reason)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_contexts(inputs: Inputs, objects: EmissaryObjects) -> Contexts:
    """Reads all TLSContexts; references to them have no namespace."""
    contexts: dict[str, TLSContext] = {}
    for reader in objects.of("TLSContext"):
        context = _context(inputs, reader)
        first = contexts.setdefault(reader.document.bare_name, context)
        if first is not context:
            text = f"{first.reader.document.name} has the same name; of the two, Emissary uses one, and that is taken here"
            reader.note(Category.CHANGED, "same-name", text, "spec", severity=NoteSeverity.HIGH)
    return Contexts(contexts)


def _context(inputs: Inputs, reader: FieldReader) -> TLSContext:
    spec = reader.child("spec")
    crossing = spec.boolean("secret_namespacing", True)
    secret, ca, crl = (_secret(spec.text(key), reader.namespace, crossing) for key in ("secret", "ca_secret", "crl_secret"))
    chain, key, ca_file = (spec.text(key) for key in ("cert_chain_file", "private_key_file", "cacert_chain_file"))
    spec.ignore("hosts", "cert_required", "redirect_cleartext_from")
    trust, problem = _trust(inputs, ca, secret, ca_file)
    if trust and not secret and not chain:
        problem = "has a CA but no client certificate, which Emissary refuses"
    else:
        problem = _certificate_problem(inputs, spec, secret, chain, key) or problem
    if trust and spec.value.get("hosts"):
        spec.note(Category.ACCESS_CONTROL, "client-certificates", CLIENTS_LOST, None)
    revocation = (TrustRef("Secret", *crl, CRL_KEY),) if crl and trust else ()
    client_file = "" if secret else chain
    return TLSContext(reader, problem, trust, revocation, secret, client_file, spec.text("sni"), _options(spec))


def _certificate_problem(inputs: Inputs, spec: FieldReader, secret: ObjectName | None, chain: str, key: str) -> str:
    """Returns the reason why the certificate of a context is unusable. Lists a Secret that is not in the input."""
    data = inputs.data("Secret", *secret) if secret else None
    if secret and data is None:
        text = f"Secret {secret} {inputs.absence('Secret', *secret)}; it is taken to have a certificate with its key"
        remedy = "Add it to the input: without it the TLSContext is not used, and with root-cert.pem it has a CA."
        spec.note(Category.TODO, "secret-missing", text, "secret", remedy=remedy, severity=NoteSeverity.WARNING)
    if secret and chain:
        return "has both a secret and a cert_chain_file"
    if data is not None and not data.keys() >= {"tls.crt", "tls.key"}:
        return f"names Secret {secret}, which has no certificate with its key"
    return "has a cert_chain_file without a private_key_file" if chain and not key else ""


def _trust(inputs: Inputs, ca: ObjectName | None, secret: ObjectName | None, file: str) -> tuple[tuple[Trust, ...], str]:
    """Returns the CA of a context, with the reason if it cannot be used."""
    if ca:
        content = inputs.data("Secret", *ca)
        if content is not None and "tls.crt" not in content:
            missing = MissingTrust(f"Secret {ca} has no tls.crt, where Emissary reads the CA")
            return (missing,), f"names Secret {ca} as CA, which has no tls.crt"
        return (TrustRef("Secret", *ca, "tls.crt"),), ""
    if secret and ROOT_KEY in (inputs.data("Secret", *secret) or {}):
        return (TrustRef("Secret", *secret, ROOT_KEY),), ""
    return ((FileTrust(file),) if file else ()), ""


def _secret(text: str, namespace: str, crossing: bool) -> ObjectName | None:
    if not text:
        return None
    name, dot, owner = text.rpartition(".")
    return ObjectName(owner, name) if dot and crossing else ObjectName(namespace, text)


def _options(spec: FieldReader) -> TLSOptions:
    lowest, highest = _versions(spec)
    alpn = spec.text("alpn_protocols").strip()
    if alpn and alpn not in ("h2", "http/1.1"):
        text = "was sent as one protocol with this very name, which no backend knows; both are offered now"
        spec.note(Category.CHANGED, "alpn", text, "alpn_protocols")
        alpn = ""
    return TLSOptions(
        min_version=lowest or None,
        max_version=highest or VERSIONS[-1],
        cipher_suites=_choosable(spec, "cipher_suites", CIPHER_SUITES),
        curves=_choosable(spec, "ecdh_curves", CURVES),
        alpn=(alpn,) if alpn else (),
    )


def _versions(spec: FieldReader) -> tuple[str, str]:
    """Returns the lowest and the highest version. An empty one cannot be written."""
    lowest, highest = (_version(spec, key) for key in ("min_tls_version", "max_tls_version"))
    if lowest and highest and lowest > highest:
        spec.note(Category.CANNOT, "contradiction", "is higher than max_tls_version, and is left out", "min_tls_version")
        lowest = ""
    return (highest if highest and highest < (lowest or "1.2") else lowest), highest


def _version(spec: FieldReader, key: str) -> str:
    version = spec.text(key).lower().removeprefix("v")
    if version and version not in VERSIONS:
        spec.note(Category.CANNOT, "tls-version", "is not a version of TLS, and is left out", key)
        return ""
    return version


def _choosable(spec: FieldReader, key: str, supported: Sequence[str]) -> tuple[str, ...]:
    names = spec.texts(key)
    if not set(names) <= set(supported):
        spec.note(Category.CANNOT, "ciphers", "some of these cannot be chosen, and are left out", key)
    return tuple(name for name in names if name in supported)
