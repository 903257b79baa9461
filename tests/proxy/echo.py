"""Provides a backend that echoes its request, and a client for any request."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.proxy import documents as docs
from tests.proxy.documents import Document
from tests.proxy.lasthop import Lasthop

PLAIN = {"name": "http", "port": 80}


class Said(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def seen(self) -> dict[str, Any]:
        """Returns the request as the backend received it: its name, method, path, host, headers (lower case, several of a name
        joined by commas)."""
        assert self.status == 200, self
        document: dict[str, Any] = json.loads(self.body)
        return document


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """An answer is one packet: two would wait 40 ms for each other (Nagle)."""
    server: Echo

    def handle_one_request(self) -> None:
        with contextlib.suppress(OSError):
            super().handle_one_request()

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode()
        names = dict.fromkeys(name.lower() for name in self.headers)
        seen = {
            "backend": self.server.name,
            "method": self.command,
            "path": self.path,
            "host": self.headers["host"],
            "headers": {name: ",".join(self.headers.get_all(name) or []) for name in names},
            "body": body,
        }
        status, delay = self.server.outcome(seen)
        time.sleep(delay)
        answer = json.dumps(seen).encode()
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            self.send_header("content-length", str(len(answer)))
            for pair in self.server.response_headers:
                self.send_header(*pair)
            self.end_headers()
            self.wfile.write(answer if self.command != "HEAD" else b"")
            self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = _answer

    def log_message(self, *_: object) -> None:
        pass


class Echo(ThreadingHTTPServer):
    """Header `x-plan: 500 200:300` asks for a 500 and then for a 200 after 300 ms, for requests with the same `x-id`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, name: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name = name
        self.context = context
        self.seen: list[dict[str, Any]] = []
        self.response_headers: list[tuple[str, str]] = []
        self.plan = "200"
        """Where a request asks for none."""
        self._tries: dict[str, Iterator[int]] = {}
        self._lock = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def finish_request(self, request: Any, client_address: Any) -> None:
        with contextlib.suppress(OSError):
            if self.context is None:
                super().finish_request(request, client_address)
                return
            with self.context.wrap_socket(request, server_side=True) as tls:
                super().finish_request(tls, client_address)

    def handle_error(self, *_: object) -> None:
        pass

    def outcome(self, seen: dict[str, Any]) -> tuple[int, float]:
        with self._lock:
            self.seen.append(seen)
            plan = seen["headers"].get("x-plan", self.plan).split()
            number = next(self._tries.setdefault(seen["headers"].get("x-id", ""), itertools.count()))
        status, _, delay = plan[min(number, len(plan) - 1)].partition(":")
        return int(status), int(delay or 0) / 1000

    def asked(self, host: str) -> list[dict[str, Any]]:
        return [seen for seen in list(self.seen) if seen["host"] == host]


@contextlib.contextmanager
def echo(name: str, context: ssl.SSLContext | None = None) -> Iterator[Echo]:
    server = Echo(name, context)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def ask(
    gateway: Lasthop,
    host: str,
    path: str = "/",
    *,
    method: str = "GET",
    port: int = 0,
    headers: dict[str, str] | None = None,
    body: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Said:
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port or gateway.port, timeout=15, context=tls)
        if tls
        else http.client.HTTPConnection("127.0.0.1", port or gateway.port, timeout=15)
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, {"Host": host, **(headers or {})})
        response = connection.getresponse()
        return Said(response.status, response.headers, response.read().decode())


def service(name: str, *ports: int, app_protocol: str = "") -> list[Document]:
    """A Service with a plaintext port 80, found on these ports of this machine."""
    port = {**PLAIN, **({"appProtocol": app_protocol} if app_protocol else {})}
    return [docs.service(name, port), *docs.endpoints(name, *ports, port_name="http")]


def to(name: str, **more: Any) -> Document:
    return docs.to(name, 80, **more)


def rules(path: str, *rules: Document, host: str = "", created: str = "", **spec: Any) -> Document:
    """Makes an HTTPRoute with these rules, for the host NAME.test unless another is given."""
    document = docs.route(path, host=host)
    document["spec"] |= {"rules": list(rules), **spec}
    if created:
        document["metadata"]["creationTimestamp"] = created
    return document


def prefix(value: str) -> Document:
    return {"path": {"type": "PathPrefix", "value": value}}


def rule(match: str | Document, *filters: Document, to: list[Document] | None = None, **more: Any) -> Document:
    """A match is a prefix, or a whole match."""
    document: Document = {"matches": [prefix(match) if isinstance(match, str) else match], **more}
    if filters:
        document["filters"] = list(filters)
    if to is not None:
        document["backendRefs"] = to
    return document


def redirect(**wanted: Any) -> Document:
    return {"type": "RequestRedirect", "requestRedirect": wanted}


def rewrite(**wanted: Any) -> Document:
    return {"type": "URLRewrite", "urlRewrite": wanted}


def full_path(value: str) -> Document:
    return {"type": "ReplaceFullPath", "replaceFullPath": value}


def prefix_path(value: str) -> Document:
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": value}


def request_headers(**wanted: Any) -> Document:
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": _edit(wanted)}


def response_headers(**wanted: Any) -> Document:
    return {"type": "ResponseHeaderModifier", "responseHeaderModifier": _edit(wanted)}


def _edit(wanted: dict[str, Any]) -> Document:
    pairs: Document = {
        key: [{"name": n, "value": v} for n, v in wanted[key].items()] for key in ("set", "add") if key in wanted
    }
    return {**pairs, **({"remove": wanted["remove"]} if "remove" in wanted else {})}


def mirror(name: str, port: int = 80, **more: Any) -> Document:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": docs.to(name, port), **more}}


def cors(**wanted: Any) -> Document:
    return {"type": "CORS", "cors": wanted}


def external_auth(protocol: str, name: str, *, namespace: str = "", body: int = 0, **config: Any) -> Document:
    """Makes a filter that queries a Service's port 443; `config` is the configuration of the protocol."""
    where: Document = {"namespace": namespace} if namespace else {}
    to = docs.to(name, **where)
    fields = {"protocol": protocol, "backendRef": to, protocol.lower(): config}
    return {"type": "ExternalAuth", "externalAuth": {**fields, **({"forwardBody": {"maxSize": body}} if body else {})}}


# request path, matched prefix, replacement, what comes of it: the table of HTTPPathModifier, and its edges
PREFIX_TABLE = [
    ("/foo/bar", "/foo", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo", "/xyz/", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz", "/xyz/bar"),
    ("/foo/bar", "/foo/", "/xyz/", "/xyz/bar"),
    ("/foo", "/foo", "/xyz", "/xyz"),
    ("/foo/", "/foo", "/xyz", "/xyz/"),
    ("/foo/bar", "/foo", "", "/bar"),
    ("/foo/", "/foo", "", "/"),
    ("/foo", "/foo", "", "/"),
    ("/foo/", "/foo", "/", "/"),
    ("/foo", "/foo", "/", "/"),
    ("/foo/foo", "/foo", "/xyz", "/xyz/foo"),
    ("/bar", "/", "/xyz", "/xyz/bar"),
    ("/bar", "/", "/", "/bar"),
    ("/a.b/c", "/a.b", "/x", "/x/c"),
]


def replacing(kind: Callable[..., Document], *refs: Document) -> list[Document]:
    """Makes a route for each row of PREFIX_TABLE, each with its own host."""
    return [
        rules(f"table-{n}", rule(prefix, kind(path=prefix_path(value)), **({"to": list(refs)} if refs else {})))
        for n, (_, prefix, value, _) in enumerate(PREFIX_TABLE)
    ]
