"""Reads Policies, and combines the policies of one context: a server, a route or a minion.

If a policy is invalid or lacks its Secret, its whole context answers 500 [internal/configs/policy.go].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lasthop.base.api.routes import HTTPHeader, HTTPHeaderFilter, HTTPRouteFilter
from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.documents import Document
from lasthop_import.filters import joined
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    Auth,
    ClientValidation,
    FileTrust,
    HopTLS,
    ImportedHop,
    Name,
    ObjectName,
    ServiceBackend,
    TrustRef,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.openssl import tls_options
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.kinds import POLICY
from lasthop_import.values import cors

CA_TYPE: Final = "nginx.org/ca"
TLS_TYPE: Final = "kubernetes.io/tls"
PROTOCOLS: Final = "TLSv1 TLSv1.1 TLSv1.2"
"""The default TLS versions and ciphers of nginx."""
ACCESS_CONTROL: Final = {
    "accessControl": "only some client addresses had access; Gateway API has no IP allowlists or denylists",
    "rateLimit": "requests were limited",
    "jwt": "requests needed a JSON Web Token; none is required now",
    "basicAuth": "users had to log in; no login is required now",
    "oidc": "users had to log in; no login is required now",
    "waf": "a web application firewall inspected requests",
    "apiKey": "requests needed an API key; none is required now",
}


TYPES: Final = (*ACCESS_CONTROL, "cache", "cors", "egressMTLS", "externalAuth", "hsts", "ingressMTLS")
"""A valid policy has exactly one of these fields [pkg/apis/configuration/validation/policy.go]."""


class Egress(msgspec.Struct, frozen=True):
    """The settings of an egressMTLS policy, with which nginx verifies backends."""

    policy: str
    verify: bool
    name: str
    server_name: bool
    ca: TrustRef | None
    client: ObjectName | None
    options: TLSOptions


class NginxPolicies(msgspec.Struct, frozen=True):
    """The combined policies of one context: the first policy of each type counts."""

    egress: Egress | None = None
    broken: str = ""
    """The reason why the context answers 500."""
    clients: ClientValidation | None = None
    filters: tuple[HTTPRouteFilter, ...] = ()
    auth: Auth | None = None


class NginxPolicyReader:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._documents = {(document.namespace, document.bare_name): document for document in inputs.of(POLICY)}
        self._read: dict[tuple[str, str], NginxPolicies] = {}

    def combine(self, references: Iterable[tuple[str, str, SourceRef]]) -> NginxPolicies:
        """Combines the policies of a context. A reference has a namespace, a name and a source."""
        combined = NginxPolicies()
        for namespace, name, source in references:
            policies = self._named(namespace, name, source)
            if combined.egress and policies.egress:
                text = f"a second egressMTLS in the same place was ignored; {combined.egress.policy} is in force"
                self._inputs.notes.append(Note(Category.CHANGED, "second-egress-ignored", text, source))
            combined = NginxPolicies(
                egress=combined.egress or policies.egress,
                broken=combined.broken or policies.broken,
                clients=combined.clients or policies.clients,
                filters=joined((*combined.filters, *policies.filters)),
                auth=combined.auth or policies.auth,
            )
        return combined

    def note_unused(self) -> None:
        for key, document in self._documents.items():
            if key not in self._read:
                self._inputs.skip(document, "unused", "no server, route or Ingress that is imported names it")

    def _named(self, namespace: str, name: str, source: SourceRef) -> NginxPolicies:
        if (policies := self._read.get((namespace, name))) is not None:
            return policies
        if document := self._documents.get((namespace, name)):
            self._read[namespace, name] = self._policy(document)
            return self._read[namespace, name]
        text = f"Policy {namespace}/{name} is not in the input; whether it restricts access or verifies is not known"
        self._inputs.notes.append(Note(Category.ACCESS_CONTROL, "policy-missing", text, source))
        return NginxPolicies(broken=f"Policy {namespace}/{name} is missing")

    def _policy(self, document: Document) -> NginxPolicies:
        spec = self._inputs.open(document).child("spec")
        spec.ignore("ingressClassName")
        for key, text in ACCESS_CONTROL.items():
            spec.access_control(key, text)
        spec.cannot("cache", "responses are not cached")
        policies = NginxPolicies()
        if sum(key in spec for key in TYPES) != 1:
            policies = NginxPolicies(broken=f"{document.name} is invalid: it must have exactly one of {', '.join(TYPES)}")
        if "egressMTLS" in spec:
            egress, broken = self._egress(spec.child("egressMTLS"), document)
            policies = msgspec.structs.replace(policies, egress=egress, broken=policies.broken or broken)
        if "ingressMTLS" in spec:
            policies = msgspec.structs.replace(policies, clients=self._clients(spec.child("ingressMTLS"), document))
        if "cors" in spec:
            policies = msgspec.structs.replace(policies, filters=_cors(spec.child("cors")))
        if "hsts" in spec:
            policies = msgspec.structs.replace(policies, filters=(*policies.filters, _hsts(spec.child("hsts"))))
        if "externalAuth" in spec:
            policies = msgspec.structs.replace(policies, auth=self._auth(spec.child("externalAuth"), document))
        return policies

    # --- egressMTLS --------------------------------------------------------------------------------------------------

    def _egress(self, reader: FieldReader, document: Document) -> tuple[Egress, str]:
        namespace = document.namespace
        verify, ca_secret, client_secret = (
            reader.boolean("verifyServer"),
            reader.text("trustedCertSecret"),
            reader.text("tlsSecret"),
        )
        options = _options(reader)
        depth = reader.integer("verifyDepth", 1)
        if verify:
            text = f"chains of more than {depth} intermediate certificate(s) were refused; their length is not limited now"
            reader.note(Category.LOOSENED, "depth-dropped", text, "verifyDepth", severity=NoteSeverity.WARNING)
        broken = ""
        if verify and not ca_secret:
            broken = f"{document.name} has verifyServer without trustedCertSecret, so it is invalid"
        if ca_secret:
            broken = broken or self._problem(reader, "trustedCertSecret", namespace, ca_secret, CA_TYPE, ("ca.crt",))
        if client_secret:
            broken = broken or self._problem(reader, "tlsSecret", namespace, client_secret, TLS_TYPE, ("tls.crt", "tls.key"))
        ca = TrustRef("Secret", namespace, ca_secret) if ca_secret else None
        client = ObjectName(namespace, client_secret) if client_secret else None
        name, server_name = reader.text("sslName"), reader.boolean("serverName")
        return Egress(document.name, verify, name, server_name, ca, client, options), broken

    def _problem(self, reader: FieldReader, key: str, namespace: str, name: str, kind: str, keys: tuple[str, ...]) -> str:
        """Returns the reason why the controller refuses a Secret, or "". A Secret that is not in the input counts as valid."""
        data, secret = self._inputs.data("Secret", namespace, name), self._inputs.find("Secret", namespace, name)
        if data is None or secret is None:
            text = f"the Secret {self._inputs.absence('Secret', namespace, name)}; type {kind} is assumed"
            remedy = "Add it to the input: if it were missing or of another type, the controller would answer 500."
            reader.note(Category.TODO, "secret-missing", text, key, remedy=remedy, severity=NoteSeverity.WARNING)
            return ""
        actual = secret.value.get("type") or "Opaque"
        if actual != kind:
            return f"Secret {namespace}/{name} is of type {actual}, not {kind}"
        missing = [entry for entry in keys if entry not in data]
        return f"Secret {namespace}/{name} has no {missing[0]}" if missing else ""

    # --- other types -------------------------------------------------------------------------------------------------

    def _clients(self, reader: FieldReader, document: Document) -> ClientValidation | None:
        secret, mode = reader.text("clientCertSecret"), reader.text("verifyClient", "on")
        depth = reader.integer("verifyDepth", 1)
        file = reader.text("crlFileName")
        if not secret or mode == "off":
            return None
        text = f"chains of more than {depth} intermediate certificate(s) were refused; their length is not limited now"
        reader.note(Category.LOOSENED, "depth-dropped", text, "verifyDepth", severity=NoteSeverity.WARNING)
        if mode != "on":
            text = (
                f"{mode}: the gateway accepts clients without a valid certificate, and does not identify them to the backend"
            )
            reader.note(Category.CHANGED, "client-validation-optional", text, "verifyClient")
        revocation = (FileTrust(file),) if file else ()
        return ClientValidation((TrustRef("Secret", document.namespace, secret),), mode != "on", revocation)

    def _auth(self, reader: FieldReader, document: Document) -> Auth | None:
        service, ports = reader.text("authServiceName"), reader.raw("authServicePorts")
        uri, encrypted = reader.text("authURI"), reader.boolean("sslEnabled")
        tls = _auth_tls(reader, document)
        reader.ignore("sslVerifyDepth")
        reader.cannot("authSigninURI", "a client that is refused is not sent to a login page")
        reader.cannot("authSigninRedirectBasePath", "belongs to authSigninURI")
        reader.access_control("authSnippets", "nginx configuration of the authentication request")
        namespace, _, name = service.rpartition("/")
        match ports:
            case [int(number), *_]:
                pass
            case _:
                number = 443 if encrypted else 80
        if not name:
            text = "names no Service, so no server would authorize requests"
            reader.note(Category.ACCESS_CONTROL, "externalAuth", text, None)
            return None
        path = uri if uri.startswith("/") and uri != "/" else ""
        if path:
            text = f"the server received requests for {path}; now this precedes the request's own path"
            reader.note(Category.CHANGED, "auth-path", text, "authURI", remedy="Let the server accept all paths below it.")
        backend = ServiceBackend(namespace or document.namespace, name, number)
        return Auth(ImportedHop(reader.source(), backend, tls if encrypted else None), path=path)


def _options(reader: FieldReader) -> TLSOptions:
    """Returns versions, ciphers and session reuse of an egressMTLS, and lists the differences."""
    protocols, result = reader.text("protocols"), tls_options(reader.text("protocols"), reader.text("ciphers"))
    if result.lost_ciphers:
        text = "an expression, or ciphers that Envoy does not have; the new gateway uses its own"
        reader.note(Category.CANNOT, "ciphers", text, "ciphers")
    if tls_options(protocols or PROTOCOLS, "").old_versions:
        always = "" if protocols else ", as always if protocols is not set"
        text = f"nginx offered TLS 1.0 and 1.1 to backends{always}; the new gateway does not"
        reader.note(Category.TIGHTENED, "tls-1.0-gone", text, "protocols", severity=NoteSeverity.WARNING)
    reuse = "true" if reader.boolean("sessionReuse", True) else "false"
    return msgspec.structs.replace(result.options, session_reuse=reuse)


def _auth_tls(reader: FieldReader, document: Document) -> HopTLS:
    """Returns the TLS to an authentication server with sslEnabled."""
    verify, ca_secret, sni = reader.boolean("sslVerify"), reader.text("trustedCertSecret"), reader.text("sniName")
    ca = (TrustRef("Secret", document.namespace, ca_secret),) if ca_secret else ()
    names = (Name(sni),) if sni else ()
    if not verify:
        return HopTLS(OldLevel.UNVERIFIED, "sslVerify is off", names=names, trust=ca)
    if not sni or not ca:
        return HopTLS(OldLevel.BROKEN, "sslVerify without sniName or trustedCertSecret", names=names, trust=ca)
    return HopTLS(OldLevel.NAME, f"sslVerify, with sniName {sni}", names=names, sni=sni, trust=ca, cn_fallback=True)


def _cors(reader: FieldReader) -> tuple[HTTPRouteFilter, ...]:
    result = cors(
        reader.texts("allowOrigin"),
        reader.texts("allowMethods") or ("GET", "HEAD", "POST"),
        reader.texts("allowHeaders"),
        reader.texts("exposeHeaders"),
        reader.integer("maxAge"),
        reader.boolean("allowCredentials"),
    )
    if result.refused:
        text = f"{', '.join(result.refused)} cannot be written, and is left out"
        reader.note(Category.CANNOT, "cors", text, None)
    return (result.filter,) if result.filter else ()


def _hsts(reader: FieldReader) -> HTTPRouteFilter:
    reader.ignore("behindProxy")
    return hsts(reader.integer("maxAge", 2592000) or 0, reader.boolean("includeSubDomains"), reader.boolean("preload"))


def hsts(age: int, subdomains: bool, preload: bool = False) -> HTTPRouteFilter:
    parts = [f"max-age={age}", *(["includeSubDomains"] if subdomains else []), *(["preload"] if preload else [])]
    edit = HTTPHeaderFilter(set=(HTTPHeader("Strict-Transport-Security", "; ".join(parts)),))
    return HTTPRouteFilter("ResponseHeaderModifier", response_header_modifier=edit)
