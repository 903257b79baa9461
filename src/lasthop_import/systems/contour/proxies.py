"""Converts HTTPProxies into listeners and rules. A root includes others, whose routes become routes in their own namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from lasthop.base.api.routes import HTTPRouteFilter
from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import (
    Auth,
    Certificate,
    ClientValidation,
    ForeignCertificate,
    HopTLS,
    ImportedHop,
    ImportedListener,
    ImportedMatch,
    ImportedMirror,
    ImportedRule,
    PathMatch,
    RouteKind,
    SecretCertificate,
    TrustRef,
    keys_of,
)
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.settings import ImportSettings
from lasthop_import.systems.contour import filters
from lasthop_import.systems.contour.backend_tls import ContourBackends
from lasthop_import.systems.contour.conditions import RouteConditions, joined
from lasthop_import.systems.contour.kinds import CLASS_ANNOTATIONS, HTTP_PROXY, Delegations, is_ours, secret_name
from lasthop_import.values import TOKEN, https_redirect_rule, is_host, url_rewrite

HTTP, HTTPS = 80, 443
CRL_KEY: Final = "crl.pem"
ACCESS: Final = {
    "rateLimitPolicy": "requests were limited; the new gateway does not limit them",
    "jwtProviders": "requests needed a token (JWT); they need none now",
    "jwtVerificationPolicy": "requests needed a token (JWT); they need none now",
    "ipAllowPolicy": "only these client addresses had access; Gateway API has no IP allowlists",
    "ipDenyPolicy": "these client addresses were refused; Gateway API has no IP denylists",
}
CANNOT: Final = {
    "healthCheckPolicy": "endpoints are not probed",
    "cookieRewritePolicies": "cookies are not rewritten",
    "internalRedirectPolicy": "redirects of backends are passed on",
    "slowStartPolicy": "new endpoints get requests at once",
}
UNUSED: Final = ("services", "pathRewritePolicy", "timeoutPolicy", "retryPolicy", "loadBalancerPolicy")
"""Fields without effect beside a redirect or a direct response."""


class Root(NamedTuple):
    """A virtual host."""

    hostname: str
    plain: ImportedListener
    secure: ImportedListener | None
    auth: Auth | None
    cors: tuple[HTTPRouteFilter, ...]


CONTEXT_LOST: Final = "the authorization server used this, and no longer receives it"


def _fqdn(spec: FieldReader) -> str:
    return spec.child("virtualhost").text("fqdn").lower()


class ProxyReader:
    def __init__(self, inputs: Inputs, settings: ImportSettings, delegations: Delegations, backends: ContourBackends) -> None:
        self._inputs = inputs
        self._settings = settings
        self._delegations = delegations
        self._backends = backends
        self._included: set[Document] = set()
        self.listeners: list[ImportedListener] = []
        self.rules: list[ImportedRule] = []

    def read(self) -> None:
        documents = []
        for document in self._inputs.of(HTTP_PROXY):
            if is_ours(document, self._settings):
                documents.append(document)
            else:
                self._inputs.skip(document, "other-class", "its class is another one; see --ingress-class")
        for document in documents:
            reader = self._inputs.open(document)
            reader.annotations().ignore(*CLASS_ANNOTATIONS)
            reader.child("spec").ignore("ingressClassName")
        roots = [spec for document in documents if "virtualhost" in (spec := self._inputs.open(document).child("spec"))]
        owners = Counter(_fqdn(spec) for spec in roots)
        for spec in roots:
            if owners[_fqdn(spec)] == 1:
                self._root(spec)
            else:
                text = f"another HTTPProxy has the fqdn {_fqdn(spec)[:100]}, too; Contour serves none of them"
                spec.note(Category.CANNOT, "fqdn-conflict", text, severity=NoteSeverity.HIGH)
                self._inputs.open(spec.document).ignore("spec")
        for document in documents:
            spec = self._inputs.open(document).child("spec")
            if "virtualhost" not in spec and document not in self._included:
                text = "no root HTTPProxy includes it, so that it was not used"
                self._inputs.open(document).note(Category.SKIPPED, "orphaned", text, "spec")

    # --- virtual hosts -----------------------------------------------------------------------------------------------

    def _root(self, spec: FieldReader) -> None:
        host = spec.child("virtualhost")
        fqdn = _fqdn(spec)
        if not is_host(fqdn):
            text = f"{fqdn[:100]!r} cannot be the hostname of a listener; the HTTPProxy is left out"
            host.note(Category.CANNOT, "host", text, "fqdn", severity=NoteSeverity.HIGH)
            spec.ignore(*spec.value)
            spec.note(Category.SKIPPED, "left-out", "has no valid fqdn")
            return
        for key, text in ACCESS.items():
            host.access_control(key, text)
        root = Root(
            fqdn,
            ImportedListener(host.source(), HTTP, "HTTP", fqdn),
            self._secure(host, fqdn, "tcpproxy" in spec),
            self._auth(host),
            filters.cors_filter(host),
        )
        if not any(key in spec for key in ("routes", "includes", "tcpproxy")):
            spec.note(Category.SKIPPED, "no-routes", f"{fqdn} has no routes, so nothing was served")
        if "tcpproxy" in spec:
            self._stream(spec, root)
        self._proxy(spec, root, RouteConditions(), (spec.document,))

    def _secure(self, host: FieldReader, fqdn: str, stream: bool) -> ImportedListener | None:
        tls = host.child("tls")
        if "tls" not in host:
            return None
        passthrough, named = tls.boolean("passthrough"), tls.text("secretName")
        for key in ("minimumProtocolVersion", "maximumProtocolVersion"):
            tls.cannot(key, "TLS versions for clients cannot be set by host")
        if tls.boolean("enableFallbackCertificate"):
            text = "clients without SNI got the fallback certificate; they reach no host now"
            tls.note(Category.CANNOT, "fallback-certificate", text, "enableFallbackCertificate")
        clients = self._clients(tls) if "clientValidation" in tls else None
        if passthrough:
            return ImportedListener(tls.source(), HTTPS, "TLS", fqdn, passthrough=True)
        certificate = self._certificate(tls, named)
        return ImportedListener(tls.source(), HTTPS, "TLS" if stream else "HTTPS", fqdn, (certificate,), clients=clients)

    def _certificate(self, tls: FieldReader, named: str) -> Certificate:
        if not named:
            return ForeignCertificate("tls has no secretName")
        secret = secret_name(named, tls.namespace)
        if self._delegations.permit(secret, tls.namespace):
            return SecretCertificate(*secret)
        text = f"no TLSCertificateDelegation lets namespace {tls.namespace} use Secret {secret}; it was not served"
        tls.note(Category.CHANGED, "not-delegated", text, "secretName", severity=NoteSeverity.HIGH)
        return ForeignCertificate(f"Secret {secret} is not delegated to namespace {tls.namespace}")

    def _clients(self, tls: FieldReader) -> ClientValidation:
        reader = tls.child("clientValidation")
        secret = secret_name(reader.text("caSecret") or "client-ca-todo", tls.namespace)
        if "caSecret" not in reader:
            text = f"names no CA; the listener is closed until Secret {secret} has a ca.crt"
            reader.note(Category.TODO, "client-ca-missing", text, remedy="Create it.")
        optional = reader.boolean("optionalClientCertificate") or reader.boolean("skipClientCertValidation")
        reader.ignore("optionalClientCertificate", "skipClientCertValidation")
        if optional:
            text = "the gateway accepts clients without a valid certificate, and does not identify them to the backend"
            reader.note(Category.CHANGED, "client-validation-optional", text)
        reader.cannot("forwardClientCertificate", "the client's certificate is not passed on")
        listed = secret_name(reader.text("crlSecret"), tls.namespace) if "crlSecret" in reader else None
        if reader.boolean("crlOnlyVerifyLeafCert") and listed:
            text = (
                "only client certificates were checked against the list; if it is a root's, those of intermediate CAs are too"
            )
            reader.note(Category.TIGHTENED, "crl-of-chain", text, "crlOnlyVerifyLeafCert", severity=NoteSeverity.WARNING)
        revocation = (TrustRef("Secret", *listed, CRL_KEY),) if listed else ()
        return ClientValidation((TrustRef("Secret", *secret),), optional, revocation)

    def _auth(self, host: FieldReader) -> Auth | None:
        if "authorization" not in host:
            return None
        reader = host.child("authorization")
        hop = self._backends.extension(reader.child("extensionRef"), host.namespace)
        grpc = reader.text("serviceType", "grpc") != "http"
        http, body = reader.child("httpSettings"), reader.child("withRequestBody")
        path, size = http.text("pathPrefix"), body.integer("maxRequestBytes") or 0
        sent, returned = (_header_names(http, f"allowed{whose}Headers") for whose in ("Authorization", "Upstream"))
        body.ignore("allowPartialMessage", "packAsBytes")
        reader.cannot("responseTimeout", "a server that does not answer refuses the request, with 503")
        if reader.boolean("failOpen"):
            text = "let requests through when the server did not answer; they are refused now"
            reader.note(Category.TIGHTENED, "fail-open", text, "failOpen")
        reader.child("authPolicy").access_control("context", CONTEXT_LOST)
        reader.child("authPolicy").ignore("disabled")
        if hop is None:
            text = "the ExtensionService is not in the input, or names no Service; requests are not authorized now"
            reader.note(Category.ACCESS_CONTROL, "authorization", text, "extensionRef")
            return None
        auth = Auth(hop, grpc=grpc, body_bytes=max(0, min(size, 65535)))
        return auth if grpc else msgspec.structs.replace(auth, path=path, headers=sent, response_headers=returned)

    # --- routes ------------------------------------------------------------------------------------------------------

    def _proxy(self, spec: FieldReader, root: Root, outer: RouteConditions, above: Sequence[Document]) -> None:
        """Adds the routes of an HTTPProxy after the routes of all HTTPProxies that it includes."""
        for include in spec.children("includes"):
            conditions = joined(outer, include.children("conditions"))
            namespace, name = include.text("namespace") or spec.namespace, include.text("name")
            document = self._inputs.find("HTTPProxy", namespace, name, HTTP_PROXY.group)
            if document is None or document in above or not is_ours(document, self._settings):
                why = "includes itself" if document in above else "is not in the input"
                text = f"HTTPProxy {namespace}/{name} {why}; its routes are left out"
                include.note(Category.TODO, "include", text, "name")
                continue
            self._included.add(document)
            below = self._inputs.open(document).child("spec")
            if "virtualhost" in below:
                include.note(Category.CANNOT, "include", "another root cannot be included; its routes are left out", "name")
                continue
            self._proxy(below, root, conditions, (*above, document))
        for route in spec.children("routes"):
            self._route(route, root, joined(outer, route.children("conditions")))

    def _route(self, route: FieldReader, root: Root, conditions: RouteConditions) -> None:
        for key, text in ACCESS.items():
            route.access_control(key, text)
        for key, text in CANNOT.items():
            route.cannot(key, text)
        route.ignore("enableWebsockets")
        insecure = route.boolean("permitInsecure")
        policy = route.child("authPolicy")
        auth = None if policy.boolean("disabled") else root.auth
        if auth:
            policy.access_control("context", CONTEXT_LOST)
        policy.ignore("context")
        rule = self._rule(route, root, conditions.match)
        if conditions.problems:
            problems = ", and ".join(conditions.problems)
            text = f"the route is left out, because it has {problems}, for which there is no equivalent"
            route.note(Category.CANNOT, "route-left-out", text, severity=NoteSeverity.HIGH)
        else:
            self._attach(route, msgspec.structs.replace(rule, auth=auth), root, insecure)

    def _rule(self, route: FieldReader, root: Root, match: ImportedMatch) -> ImportedRule:
        assert match.path is not None
        edits = filters.headers(route)
        steps = (*edits.filters, *root.cors)
        base = ImportedRule(route.source(), route.namespace, route.document.bare_name, (), (root.hostname,), matches=(match,))
        if "requestRedirectPolicy" in route or "directResponsePolicy" in route:
            return msgspec.structs.replace(base, filters=(*steps, *_answer(route, match.path, edits.host)))
        hops, mirrors = self._hops(route, edits.host)
        return msgspec.structs.replace(
            base,
            filters=(*steps, *filters.rewrite(route, match.path, edits.host)),
            hops=hops,
            mirrors=mirrors,
            timeouts=filters.timeouts(route),
            retry=filters.retry(route),
            persistence=filters.sessions(route),
        )

    def _attach(self, route: FieldReader, rule: ImportedRule, root: Root, insecure: bool) -> None:
        """Adds a rule to the listeners of its host, and the redirect to HTTPS."""
        secure = root.secure if root.secure is not None and root.secure.protocol == "HTTPS" else None
        direct = [root.plain] if root.secure is None or insecure else []
        listeners = [*direct, *([secure] if secure else [])]
        self.listeners += listeners
        if listeners:
            self.rules.append(msgspec.structs.replace(rule, listeners=keys_of(listeners)))
        else:
            route.note(Category.SKIPPED, "no-listener", "the host passes TLS on, and the route does not permit plaintext")
        if secure and not direct:
            self.listeners.append(root.plain)
            plain = (root.plain.key,)
            self.rules.append(
                https_redirect_rule(rule.source, rule.namespace, rule.route, plain, rule.hostnames, rule.matches)
            )

    def _hops(self, reader: FieldReader, host: str) -> tuple[tuple[ImportedHop, ...], tuple[ImportedMirror, ...]]:
        hops: list[ImportedHop] = []
        mirrors: list[ImportedMirror] = []
        entries = reader.children("services")
        weighted = any(entry.value.get("weight") for entry in entries if not entry.value.get("mirror"))
        for entry in entries:
            weight, hop = max(0, entry.integer("weight") or 0), self._service(entry, host)
            if hop is None:
                continue
            if entry.boolean("mirror"):
                mirrors.append(ImportedMirror(msgspec.structs.replace(hop, filters=()), min(weight, 100) or 100))
            else:
                hops.append(msgspec.structs.replace(hop, weight=weight if weighted else 1))
        return tuple(hops), tuple(mirrors)

    def _service(self, reader: FieldReader, host: str) -> ImportedHop | None:
        """Returns the hop of an entry of `services`, with its filters."""
        for key, text in CANNOT.items():
            reader.cannot(key, text)
        edits = filters.headers(reader)
        hop = self._backends.hop(reader, edits.host or host)
        if hop is None:
            return None
        return msgspec.structs.replace(hop, filters=(*edits.filters, *url_rewrite(edits.host)))

    def _stream(self, spec: FieldReader, root: Root) -> None:
        """Adds the route of a `tcpproxy`. Its include of another HTTPProxy is not carried over."""
        reader = spec.child("tcpproxy")
        for key in ("healthCheckPolicy", "loadBalancerPolicy"):
            reader.cannot(key, "has no equivalent")
        for key in ("include", "includes"):
            if key in reader:
                text = "connections are not handed on to another HTTPProxy; write its services here"
                reader.note(Category.CANNOT, "tcpproxy-include", text, key, severity=NoteSeverity.HIGH)
        hops, _ = self._hops(reader, "")
        if root.secure is None:
            reader.note(Category.CANNOT, "tcpproxy", "needs tls; it was not served", severity=NoteSeverity.HIGH)
            return
        if root.secure.passthrough:
            passed = HopTLS(OldLevel.PASSTHROUGH, "tls.passthrough")
            hops = tuple(msgspec.structs.replace(hop, tls=passed) for hop in hops)
        self.listeners.append(root.secure)
        self.rules.append(
            ImportedRule(
                source=reader.source(),
                namespace=spec.namespace,
                route=spec.document.bare_name,
                listeners=(root.secure.key,),
                hostnames=(root.hostname,),
                kind=RouteKind.TLS,
                hops=hops,
            )
        )


def _header_names(http: FieldReader, key: str) -> tuple[str, ...]:
    return tuple(header.text("exact") for header in http.children(key) if TOKEN.fullmatch(header.text("exact")))[:64]


def _answer(route: FieldReader, path: PathMatch, host: str) -> tuple[HTTPRouteFilter, ...]:
    if "directResponsePolicy" in route:
        text = "has no equivalent; these requests get 500"
        route.note(Category.CANNOT, "direct-response", text, "directResponsePolicy", severity=NoteSeverity.HIGH)
    for key in UNUSED:
        if key in route:
            route.note(Category.SKIPPED, "not-used", "has no effect together with a redirect or direct response", key)
    if "requestRedirectPolicy" in route:
        return (filters.redirect_filter(route.child("requestRedirectPolicy"), path),)
    return filters.rewrite(route, path, host)
