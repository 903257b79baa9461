"""Reads middlewares, and lists settings without an equivalent and lost access control."""

from __future__ import annotations

from typing import Final, NamedTuple

from lasthop.base.api.routes import HTTPPathModifier, HTTPRouteRetry
from lasthop_import.inputs import Inputs
from lasthop_import.levels import OldLevel
from lasthop_import.model import Auth, HopTLS, ImportedHop, Name, ObjectName, PathKind, PathMatch, SystemTrust, Trust
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.traefik.backend_tls import ca_of
from lasthop_import.systems.traefik.headers import HeadersMiddleware, read_headers
from lasthop_import.systems.traefik.kinds import CRD, OTHER_PROVIDER, TraefikObjects
from lasthop_import.systems.traefik.services import not_permitted
from lasthop_import.urls import service_url
from lasthop_import.values import TOKEN, duration, full_path, is_port, milliseconds, prefix_path

DEEPEST: Final = 10
ACCESS_CONTROL: Final = {
    "ipAllowList": "only these client addresses had access; Gateway API has no IP allowlists",
    "ipWhiteList": "only these client addresses had access; Gateway API has no IP allowlists",
    "basicAuth": "users had to log in; no login is required now",
    "digestAuth": "users had to log in; no login is required now",
    "rateLimit": "requests were limited",
    "inFlightReq": "requests at the same time were limited",
    "plugin": "a plugin, which may restrict access, has no equivalent",
}
CANNOT: Final = {
    "errors": "the backend's own error pages are passed on",
    "compress": "responses are not compressed",
    "circuitBreaker": "requests are sent to failing backends, too",
    "contentType": "the Content-Type is the backend's own",
    "grpcWeb": "gRPC-Web is not translated",
    "passTLSClientCert": "the backend does not get the client's certificate",
    "encodedCharacters": "encoded characters in paths are treated in the gateway's own way",
}


BY_REGEX: Final = {
    "stripPrefixRegex": "Gateway API removes no prefix by a regular expression; the backend gets the whole path",
    "replacePathRegex": "Gateway API rewrites no path by a regular expression; the backend gets it as it is",
    "redirectRegex": "Gateway API redirects by no regular expression; requests go to the backend",
}
"""Middlewares whose loss changes the requests at the backend."""


class RedirectMiddleware(NamedTuple):
    scheme: str
    port: int
    code: int


class PathMiddleware(NamedTuple):
    kind: str
    """`strip`, `add` or `replace`."""
    values: tuple[str, ...]
    reader: FieldReader


class Steps(NamedTuple):
    headers: HeadersMiddleware = HeadersMiddleware()
    edits: tuple[PathMiddleware, ...] = ()
    redirect: RedirectMiddleware | None = None
    auth: Auth | None = None
    retry: HTTPRouteRetry | None = None
    refused: str = ""
    """The reason why Traefik does not serve the route."""


class Middlewares:
    def __init__(self, inputs: Inputs, objects: TraefikObjects, cross_namespace: bool) -> None:
        self._inputs = inputs
        self._objects = objects
        self._cross_namespace = cross_namespace

    def read(self, references: list[FieldReader], namespace: str) -> Steps:
        steps = Steps()
        for reference in references:
            name = reference.text("name")
            steps = self._named(steps, reference, name, reference.text("namespace") or namespace, namespace, ())
        return steps

    def named(self, reader: FieldReader, key: str, namespace: str) -> Steps:
        """Reads the references of an annotation: `namespace-name@kubernetescrd,...`."""
        steps = Steps()
        for name in filter(None, (part.strip() for part in reader.text(key).split(","))):
            middleware = self._objects.find_normalized("Middleware", name.removesuffix(CRD)) if name.endswith(CRD) else None
            if middleware is not None:
                steps = self._middleware(steps, middleware, ())
            elif OTHER_PROVIDER in name and not name.endswith(CRD):
                self._unknown(reader, key, name)
            else:
                self._missing(reader, key, name)
        return steps

    def _named(self, steps: Steps, at: FieldReader, name: str, namespace: str, parent: str, path: tuple[str, ...]) -> Steps:
        if OTHER_PROVIDER in name and not name.endswith(CRD):
            self._unknown(at, "name", name)
            return steps
        label = f"{namespace}/{name.removesuffix(CRD)}"
        middleware = (
            self._objects.find_normalized("Middleware", name.removesuffix(CRD))
            if name.endswith(CRD)
            else self._objects.find("Middleware", namespace, name)
        )
        if middleware is None:
            self._missing(at, "name", label)
            return steps
        if middleware.namespace != parent and not self._cross_namespace:
            return steps._replace(refused=not_permitted(f"Middleware {label}"))
        if label in path or len(path) > DEEPEST:
            return steps._replace(refused=f"Middleware {label[:100]} refers to itself")
        return self._middleware(steps, middleware, (*path, label))

    def _unknown(self, at: FieldReader, key: str, name: str) -> None:
        text = f"{name[:100]} is of another provider, so its effect is unknown; it may restrict access"
        at.note(Category.ACCESS_CONTROL, "middleware-unknown", text, key)

    def _missing(self, at: FieldReader, key: str, name: str) -> None:
        text = f"Middleware {name[:100]} is not in the input; it may restrict access"
        at.note(Category.ACCESS_CONTROL, "middleware-missing", text, key, remedy="Add it to the input.")

    def _middleware(self, steps: Steps, reader: FieldReader, path: tuple[str, ...]) -> Steps:
        spec = reader.child("spec")
        if len(spec.value) != 1:
            refused = f"{reader.document.name} has {len(spec.value)} types instead of one, so Traefik refuses it"
            steps = steps._replace(refused=steps.refused or refused)
        _note_lost(spec)
        for reference in spec.child("chain").children("middlewares"):
            name, namespace = reference.text("name"), reference.text("namespace") or reader.namespace
            steps = self._named(steps, reference, name, namespace, reader.namespace, path)
        for key in ("stripPrefix", "addPrefix", "replacePath"):
            if key in spec:
                steps = steps._replace(edits=(*steps.edits, _edit(key, spec.child(key))))
        if "headers" in spec:
            steps = steps._replace(headers=steps.headers.after(read_headers(spec.child("headers"))))
        if "redirectScheme" in spec:
            steps = steps._replace(redirect=steps.redirect or _redirect(spec.child("redirectScheme")))
        if "retry" in spec:
            steps = steps._replace(retry=_retry(spec.child("retry")))
        if "forwardAuth" in spec:
            steps = self._forward_auth(steps, spec.child("forwardAuth"))
        return steps

    # --- external authentication -------------------------------------------------------------------------------------

    def _forward_auth(self, steps: Steps, reader: FieldReader) -> Steps:
        address = reader.text("address")
        service = service_url(address)
        for key in _AUTH_CANNOT:
            reader.cannot(key, "has no equivalent in the request to the authorization server")
        tls = self._auth_tls(reader.child("tls"), service.backend.name if service else "", address)
        request_headers, response_headers = reader.texts("authRequestHeaders"), reader.texts("authResponseHeaders")
        size = reader.integer("maxBodySize") or 0
        body = (size if 0 < size <= 2**16 - 1 else 2**16 - 1) if reader.boolean("forwardBody") else 0
        if service is None or steps.auth is not None:
            problem = (
                "only a Service of the cluster can authorize requests"
                if service is None
                else "only one server can authorize requests"
            )
            reader.note(Category.ACCESS_CONTROL, "forwardAuth", f"{problem}; the new gateway does not use this one", "address")
            return steps
        path = "" if service.path == "/" else service.path
        _note_auth(reader, path, all_headers=not request_headers)
        hop = ImportedHop(reader.source("address"), service.backend, tls if service.tls else None)
        headers, back = (
            tuple(name for name in names if TOKEN.fullmatch(name))[:64] for names in (request_headers, response_headers)
        )
        return steps._replace(auth=Auth(hop, False, path, headers, back, body))

    def _auth_tls(self, tls: FieldReader, service: str, address: str) -> HopTLS:
        skip, secret, client = tls.boolean("insecureSkipVerify"), tls.text("caSecret"), tls.text("certSecret")
        tls.ignore("caOptional")
        host = address.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
        trust: tuple[Trust, ...] = (SystemTrust(),)
        problem = ""
        if secret:
            ca = ca_of(self._inputs, tls, "Secret", secret, "caSecret")
            trust, problem = ((), ca) if isinstance(ca, str) else ((ca,), "")
        certificate = ObjectName(tls.namespace, client) if client else None
        names = (Name(host),) if host else ()
        if problem:
            why = f"forwardAuth: {problem}, so the middleware failed"
            return HopTLS(OldLevel.BROKEN, why, None, "", names, host, client_certificate=certificate)
        level = OldLevel.UNVERIFIED if skip else OldLevel.NAME
        why = "forwardAuth.tls has insecureSkipVerify" if skip else f"forwardAuth verifies the name {host}"
        return HopTLS(level, why, None, "", names, host, () if skip and not secret else trust, certificate)


_AUTH_CANNOT: Final = (
    *("trustForwardHeader", "authResponseHeadersRegex", "addAuthCookiesToResponse", "maxResponseBodySize"),
    *("headerField", "preserveLocationHeader", "preserveRequestMethod", "authSigninURL"),
)


def _note_lost(spec: FieldReader) -> None:
    for key, text in ACCESS_CONTROL.items():
        spec.access_control(key, text)
    for key, text in CANNOT.items():
        spec.cannot(key, text)
    for key, text in BY_REGEX.items():
        if key in spec:
            spec.note(Category.CANNOT, "regex-rewrite", text, key, severity=NoteSeverity.HIGH)
    if "buffering" in spec:
        text = "limits of bodies are gone: larger requests are passed on now"
        spec.note(Category.LOOSENED, "body-limit-dropped", text, "buffering")


def _note_auth(reader: FieldReader, path: str, *, all_headers: bool) -> None:
    """Lists the changes in the request to an authorization server."""
    if all_headers:
        text = "all headers were sent to the authorization server; Authorization and a few others are now"
        remedy = "List the headers that it reads, such as Cookie, in allowedHeaders."
        reader.note(Category.CHANGED, "auth-headers", text, None, remedy=remedy)
    if path:
        text = f"the server received requests for {path}; now this precedes the request's own path"
        remedy = "Let the server accept all paths below it."
        reader.note(Category.CHANGED, "auth-path", text, "address", remedy=remedy)


def _edit(key: str, reader: FieldReader) -> PathMiddleware:
    if key == "stripPrefix":
        prefixes = reader.texts("prefixes")
        reader.ignore("forceSlash")
        return PathMiddleware(
            "strip", tuple(prefix if prefix.startswith("/") else f"/{prefix}" for prefix in prefixes if prefix), reader
        )
    if key == "addPrefix":
        prefix = reader.text("prefix")
        return PathMiddleware("add", (prefix if prefix.startswith("/") else f"/{prefix}",), reader)
    return PathMiddleware("replace", (reader.text("path") or "/",), reader)


def _redirect(reader: FieldReader) -> RedirectMiddleware | None:
    scheme, permanent, port = reader.text("scheme").lower(), reader.boolean("permanent"), reader.port("port")
    if scheme not in ("http", "https"):
        reader.note(Category.CANNOT, "redirect-scheme", "only http and https can be redirected to", "scheme")
        return None
    code = 301 if permanent else 302
    other = code + 7 if permanent else code + 5
    text = f"requests other than GET were redirected with {other}; all are redirected with {code} now"
    reader.note(Category.CHANGED, "redirect-code", text, None, severity=NoteSeverity.INFO)
    number = port if isinstance(port, int) and is_port(port) else 0
    return RedirectMiddleware(scheme, number, code)


def _retry(reader: FieldReader) -> HTTPRouteRetry | None:
    attempts, interval = reader.integer("attempts") or 0, reader.raw("initialInterval")
    for key in ("timeout", "maxRequestBodyBytes", "disableRetryOnNetworkError", "retryNonIdempotentMethod"):
        reader.cannot(key, "retries have no such setting")
    codes = []
    for status in reader.texts("status"):
        if status.isascii() and status.isdigit() and 400 <= int(status) <= 599:
            codes.append(int(status))
        else:
            reader.note(Category.CANNOT, "retry-status", f"{status[:40]} is not a single status that can be retried", "status")
    if attempts < 2:
        return None
    interval_ms = milliseconds(interval) if isinstance(interval, str) else None
    backoff = duration(interval_ms) if interval_ms else ""
    return HTTPRouteRetry(tuple(dict.fromkeys(codes)), min(attempts - 1, 100), backoff)


def path_modifier(path: PathMatch | None, edits: tuple[PathMiddleware, ...]) -> HTTPPathModifier | None:
    """Returns the rewrite of matching paths by the middlewares. Lists edits that cannot be written."""
    kind = path.kind if path else PathKind.SEGMENT
    first = path.value if path and kind is not PathKind.REGEX else "/"
    current, whole = first, ""
    for edit in edits:
        if edit.kind == "replace":
            whole = edit.values[0]
        elif whole:
            whole = _applied(edit, whole, exact=True) or whole
        else:
            current = _edited(edit, kind, first, current)
    if whole:
        return full_path(whole)
    replaced = full_path if kind is PathKind.EXACT else prefix_path
    return replaced(current or "/") if current != first else None


def _edited(edit: PathMiddleware, kind: PathKind, first: str, current: str) -> str:
    """Returns the path after an edit. Lists an edit that cannot be written, and returns the unchanged path."""
    if kind is PathKind.REGEX:
        _lost(edit, "the path of the route is a regular expression")
        return current
    after = _applied(edit, current, exact=kind is PathKind.EXACT)
    if after is None:
        _lost(edit, f"the route matches {first}, and only some of these paths have the prefix")
        return current
    return after


def _applied(edit: PathMiddleware, path: str, *, exact: bool) -> str | None:
    """Returns a path, or the prefix of one, after an edit; None if the result depends on the rest of the path."""
    if edit.kind == "add":
        return edit.values[0].rstrip("/") + path if path.startswith("/") else edit.values[0]
    for prefix in edit.values:
        if path.startswith(prefix):
            return path[len(prefix) :]
        if not exact and prefix.startswith(path):
            return None
    return path


def _lost(edit: PathMiddleware, why: str) -> None:
    text = f"{why}; the backend gets the path as it is"
    edit.reader.note(Category.CANNOT, "path-rewrite", text, None, severity=NoteSeverity.HIGH)
