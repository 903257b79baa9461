"""Reads the policies for traffic, security and clients, by target. The policy with the most specific target wins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import plain
from lasthop_import.documents import Document, mappings
from lasthop_import.inputs import Inputs
from lasthop_import.model import ObjectName
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.envoy_gateway.kinds import OWN
from lasthop_import.values import TOKEN, cors, duration, milliseconds

Place = tuple[str, str, str, str]
"""Kind, namespace, name and section of a target."""
_TARGETS: Final = ("targetRef", "targetRefs", "targetSelectors", "mergeType")
_TRAFFIC: Final = (
    *("proxyProtocol", "tcpKeepalive", "healthCheck", "circuitBreaker", "connection", "dns", "http2", "faultInjection"),
    *("useClientProtocol", "compression", "compressor", "responseOverride", "httpUpgrade", "requestBuffer", "telemetry"),
    *("routingType", "admissionControl", "bandwidthLimit"),
)
_CLIENT_TLS: Final = (
    *("minVersion", "maxVersion", "ciphers", "ecdhCurves", "signatureAlgorithms", "alpnProtocols", "session", "fingerprints"),
)
_CLIENTS: Final = (
    *("tcpKeepalive", "enableProxyProtocol", "proxyProtocol", "clientIPDetection", "headers", "timeout", "connection", "path"),
    *("http1", "http2", "http3", "healthCheck", "scheme"),
)


class SecurityPolicyAuth(NamedTuple):
    reference: Json
    source: SourceRef
    namespace: str
    settings: Json


class Effect(msgspec.Struct, frozen=True):
    """The additions of a policy to the rules of routes, or to a Gateway."""

    rule: Json = {}
    filters: tuple[Json, ...] = ()
    auth: SecurityPolicyAuth | None = None
    frontend: Json = {}

    @property
    def restricts(self) -> tuple[tuple[str, ...], ...]:
        """The paths of the fields that restrict access."""
        return (*((("extAuth",),) if self.auth else ()), *((("tls", "clientValidation"),) if self.frontend else ()))


class PolicyEffects:
    """Indexes the effects of all policies of one kind by target."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._by_place: dict[Place, Effect] = {}
        self._effects: dict[Document, Effect] = {}
        self._used: set[int] = set()
        """Ids of the effects that apply to an imported object."""

    def add(self, reader: FieldReader, effect: Effect) -> None:
        spec = reader.child("spec")
        targets = [*spec.children("targetRefs"), *([spec.child("targetRef")] if "targetRef" in spec else [])]
        places = [(target, self._place(target, reader.namespace)) for target in targets]
        for selector in spec.children("targetSelectors"):
            places += [(selector, place) for place in self._selected(selector, reader.namespace)]
        if reader.document.kind == "SecurityPolicy" and "mergeType" in spec:
            text = "was merged with the Gateway's policy, which no longer applies to these routes"
            spec.note(Category.ACCESS_CONTROL, "mergeType", text, "mergeType")
        spec.cannot("mergeType", "policies are not merged; the most specific one holds")
        for target, place in places:
            if place in self._by_place:
                target.note(Category.SKIPPED, "conflicted", "an older policy has the same target", None)
            self._by_place.setdefault(place, effect)
        self._effects[reader.document] = effect

    def _place(self, target: FieldReader, namespace: str) -> Place:
        target.ignore("group")
        return (target.text("kind"), namespace, target.text("name"), target.text("sectionName"))

    def _selected(self, selector: FieldReader, namespace: str) -> list[Place]:
        kind, labels = selector.text("kind"), selector.text_map("matchLabels")
        selector.ignore("group")
        expressions = selector.raw("matchExpressions")
        documents = [
            document for document in self._inputs.documents if (document.kind, document.namespace) == (kind, namespace)
        ]
        return [
            (kind, namespace, document.bare_name, "")
            for document in documents
            if labels.items() <= document.labels.items()
            and all(_matches(expression, document.labels) for expression in mappings(expressions))
        ]

    def find(self, places: Iterable[Place]) -> Effect | None:
        effect = next((self._by_place[place] for place in places if place in self._by_place), None)
        if effect is not None:
            self._used.add(id(effect))
        return effect

    def sections(self, kind: str, name: ObjectName) -> list[str]:
        """Returns the sections of an object that are targets of policies."""
        return [place[3] for place in self._by_place if place[:3] == (kind, *name) and place[3]]

    def note_unused(self) -> None:
        """Lists the policies without an imported target; their restrictions are lost."""
        listed = {note.source.document for note in self._inputs.notes if note.source}
        for document, effect in self._effects.items():
            if id(effect) in self._used:
                continue
            for field in effect.restricts:
                text = "applies to no imported object: its target is not in the input, or has no such section"
                source = SourceRef(document, ("spec", *field))
                self._inputs.notes.append(Note(Category.ACCESS_CONTROL, field[-1], text, source))
            if not effect.restricts and document not in listed:
                self._inputs.skip(
                    document,
                    "unused",
                    "applies to no imported object: other policies are more specific, or its target is missing",
                )


def _matches(expression: Json, labels: Json) -> bool:
    """Returns whether labels match an expression. An unknown operator matches, so that no policy is left out."""
    key, values = str(expression.get("key")), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "DoesNotExist":
            return key not in labels
        case "Exists":
            return key in labels
        case _:
            return True


def read_traffic(inputs: Inputs) -> PolicyEffects:
    effects = PolicyEffects(inputs)
    for document in inputs.of(OWN["BackendTrafficPolicy"]):
        reader = inputs.open(document)
        spec = reader.child("spec")
        rule: Json = {}
        http = spec.child("timeout").child("http")
        if timeout := _duration(http, "requestTimeout"):
            rule["timeouts"] = {"request": timeout}
        for key in ("maxConnectionDuration", "connectionIdleTimeout", "maxStreamDuration"):
            http.cannot(key, "connections have no such limit")
        spec.child("timeout").cannot("tcp", "connect timeouts are the gateway's own")
        if "retry" in spec:
            rule["retry"] = _retry(spec.child("retry"))
        if "loadBalancer" in spec and (session := _session(spec.child("loadBalancer"))):
            rule["sessionPersistence"] = session
        spec.access_control("rateLimit", "requests were limited")
        for key in _TRAFFIC:
            spec.cannot(key, "has no equivalent")
        effects.add(reader, Effect(rule))
    return effects


def _duration(reader: FieldReader, key: str) -> str:
    text = reader.text(key)
    length = milliseconds(text) if text else None
    if text and length is None:
        reader.note(Category.CANNOT, "not-a-duration", "is not a duration", key)
    return duration(length) if length else ""


def _retry(reader: FieldReader) -> Json:
    attempts = reader.integer("numRetries")
    on = reader.child("retryOn")
    raw_codes = on.raw("httpStatusCodes")
    codes = [code for code in raw_codes if isinstance(code, int) and 400 <= code <= 599] if isinstance(raw_codes, list) else []
    on.cannot("triggers", "retries are by status and by connection failures")
    per_retry = reader.child("perRetry")
    per_retry.cannot("timeout", "for that, write timeouts.backendRequest")
    per_retry.child("backOff").cannot("maxInterval", "the longest wait between retries is the gateway's own")
    backoff = _duration(per_retry.child("backOff"), "baseInterval")
    reader.cannot("numAttemptsPerPriority", "backends have no priorities")
    return {
        "attempts": attempts if attempts is not None and 0 <= attempts <= 100 else 2,
        **({"codes": list(dict.fromkeys(codes))} if codes else {}),
        **({"backoff": backoff} if backoff else {}),
    }


def _session(balancer: FieldReader) -> Json | None:
    hashed = balancer.child("consistentHash")
    cookie = hashed.child("cookie")
    for key in sorted(balancer.value):
        if key not in ("consistentHash", "type"):
            balancer.cannot(key, "the new gateway balances in its own way")
    for key in sorted(hashed.value):
        if key not in ("cookie", "type"):
            hashed.cannot(key, "only cookies keep sessions")
    hashed.ignore("type")
    balancer.ignore("type")
    if "cookie" not in hashed:
        return None
    name = cookie.text("name")
    cookie.ignore("ttl")
    cookie.cannot("attributes", "the cookie's attributes cannot be set")
    if not TOKEN.fullmatch(name):
        return None
    return {"type": "Cookie", "cookie": {"name": name}}


def read_security(inputs: Inputs) -> PolicyEffects:
    effects = PolicyEffects(inputs)
    for document in inputs.of(OWN["SecurityPolicy"]):
        reader = inputs.open(document)
        spec = reader.child("spec")
        filters = _cors(spec.child("cors")) if "cors" in spec else ()
        auth = _external_auth(spec.child("extAuth")) if "extAuth" in spec else None
        for key in sorted(spec.value):
            if key not in ("cors", "extAuth", *_TARGETS):
                spec.access_control(key, "this restricted clients; there is no equivalent")
        effects.add(reader, Effect(filters=filters, auth=auth))
    return effects


def _cors(reader: FieldReader) -> tuple[Json, ...]:
    names = ("allowOrigins", "allowMethods", "allowHeaders", "exposeHeaders")
    origins, methods, headers, exposed = (reader.texts(key) for key in names)
    age = milliseconds(reader.text("maxAge")) if "maxAge" in reader else None
    result = cors(origins, methods, headers, exposed, None if age is None else age // 1000, reader.boolean("allowCredentials"))
    if result.refused:
        text = f"cannot be written: {', '.join(value[:60] for value in result.refused)}"
        reader.note(Category.CANNOT, "cors", text, None)
    return (plain(result.filter),) if result.filter else ()


def _external_auth(reader: FieldReader) -> SecurityPolicyAuth | None:
    protocol = "grpc" if "grpc" in reader else "http"
    server = reader.child(protocol)
    key, references = _auth_references(server)
    settings = _auth_settings(reader, server, protocol)
    size = reader.child("bodyToExtAuth").integer("maxRequestBytes") or 0
    for field in ("timeout", "recomputeRoute", "statusOnError"):
        reader.cannot(field, "has no equivalent in the request to the authorization server")
    for field in ("contextExtensions", "includeTLSPeerCertificate"):
        reader.access_control(field, "the authorization server used this, and no longer receives it")
    server.cannot("backendSettings", "settings of the connection to the authorization server are not carried over")
    if reader.boolean("failOpen"):
        text = "requests were allowed when the authorization server failed; they are refused now"
        reader.note(Category.TIGHTENED, "fail-open", text, "failOpen")
    if len(references) != 1 or not isinstance(references[0], dict):
        text = "a filter names exactly one authorization server; requests are not authorized now"
        reader.note(Category.ACCESS_CONTROL, "extAuth", text, None)
        return None
    external: Json = {"protocol": protocol.upper(), protocol: settings}
    if 0 < size <= 65535:
        external["forwardBody"] = {"maxSize": size}
    return SecurityPolicyAuth(references[0], server.source(key), reader.namespace, external)


def _auth_references(server: FieldReader) -> tuple[str, list[Any]]:
    """Returns the field that names an authorization server's backends, and its references."""
    single, several = server.raw("backendRef"), server.raw("backendRefs")
    if isinstance(single, dict):
        return "backendRef", [single]
    return "backendRefs", several if isinstance(several, list) else []


def _auth_settings(reader: FieldReader, server: FieldReader, protocol: str) -> Json:
    headers, back, path = _tokens(reader, "headersToExtAuth"), _tokens(server, "headersToBackend"), server.text("path")
    settings: Json = {"allowedHeaders": headers} if headers else {}
    if protocol == "http":
        settings |= {"path": path} if path.startswith("/") else {}
        settings |= {"allowedResponseHeaders": back} if back else {}
    return settings


def _tokens(reader: FieldReader, key: str) -> list[str]:
    return list(filter(TOKEN.fullmatch, reader.texts(key)))[:64]


def read_clients(inputs: Inputs) -> PolicyEffects:
    effects = PolicyEffects(inputs)
    for document in inputs.of(OWN["ClientTrafficPolicy"]):
        reader = inputs.open(document)
        spec = reader.child("spec")
        tls = spec.child("tls")
        frontend = _validation(tls.child("clientValidation"), reader.namespace) if "clientValidation" in tls else {}
        for key in _CLIENT_TLS:
            tls.cannot(key, "TLS for clients is the gateway's own")
        for key in _CLIENTS:
            spec.cannot(key, "connections of clients are treated in the gateway's own way")
        effects.add(reader, Effect(frontend=frontend))
    return effects


def _validation(reader: FieldReader, namespace: str) -> Json:
    refs = [ref for entry in reader.children("caCertificateRefs") if (ref := _client_ca(entry, namespace))]
    mode, optional = reader.text("mode"), reader.boolean("optional")
    for key in ("spkiHashes", "certificateHashes", "subjectAltNames", "crl"):
        reader.access_control(key, "narrowed which client certificates are accepted; all of the CAs are now")
    if reader.boolean("allowExpiredCertificate"):
        text = "expired client certificates were accepted, and are refused now"
        reader.note(Category.TIGHTENED, "expired-clients", text, "allowExpiredCertificate")
    if not refs:
        text = "without a CA that can be carried over, the new gateway requests no certificate from clients"
        reader.note(Category.ACCESS_CONTROL, "clientValidation", text, None)
        return {}
    if not optional and mode not in ("Request", "VerifyIfGiven", "Optional"):
        return {"caCertificateRefs": refs}
    text = "the gateway accepts clients with an invalid certificate, as it does those without one"
    reader.note(Category.LOOSENED, "client-validation-optional", text, None, severity=NoteSeverity.WARNING)
    return {"caCertificateRefs": refs, "mode": "AllowInsecureFallback"}


def _client_ca(ref: FieldReader, namespace: str) -> Json | None:
    group, kind, name = ref.text("group"), ref.text("kind") or "ConfigMap", ref.text("name")
    if ref.text("namespace") not in ("", namespace) or group or kind not in ("ConfigMap", "Secret"):
        ref.note(Category.ACCESS_CONTROL, "client-ca", "this CA of clients cannot be carried over", None)
        return None
    return {"group": "", "kind": kind, "name": name}
