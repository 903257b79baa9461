"""The backend of all cases: one process with a port for each, which records every connection. Standard library only.

    python backend.py CONFIG.json

It runs in any image with Python 3.9 or newer, so nothing here may import anything else of this package. CONFIG is

    {"host": "0.0.0.0", "control": 9000, "ports": {KEY: {"port": 20000, "serving": {...}}}}

with port 0 for a free one. Once it listens it prints {"control": PORT, "ports": {KEY: PORT}} in one line. The control port:

    GET  /records/KEY    the connections to that port
    POST /serve/KEY      sets what the port serves (a serving), and ends its open connections
"""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import ssl
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

CLIENT_HELLO = 0x16
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LONGEST = 60
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4
STATUS_200 = b"\x88"

Json = dict[str, Any]


class ServedPort:
    """A port of the backend and the record of its connections."""

    def __init__(self, key: str, host: str, number: int, serving: Json, clock: Iterator[int]) -> None:
        self.key, self.clock = key, clock
        self.records: list[Json] = []
        self.open: set[socket.socket] = set()
        self.local = threading.local()
        self.listening = socket.create_server((host, number), backlog=64)
        self.number = self.listening.getsockname()[1]
        self.serve(serving)

    def serve(self, serving: Json) -> None:
        self.serving, self.context = serving, context_of(serving, self.hello)
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hello(self, _socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int | None:
        self.local.record["sni"] = name
        only_sni = self.serving.get("only_sni")
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME if only_sni and name != only_sni else None

    def accepted(self, connection: socket.socket) -> None:
        record: Json = {"at": next(self.clock), "first": "", "tls": None, "sni": None, "requests": []}
        self.records.append(record)
        self.open.add(connection)
        try:
            with connection, suppress(OSError, ValueError):
                connection.settimeout(LONGEST)
                first = connection.recv(5, socket.MSG_PEEK)
                record["first"] = first.hex()
                record["plaintext"] = bool(first) and first[0] != CLIENT_HELLO
                if self.context is None or (record["plaintext"] and self.serving.get("both")):
                    if record["plaintext"]:
                        self.speak(connection, record, first == PREFACE[:5])
                elif not record["plaintext"]:
                    self.tls(self.context, connection, record)
        finally:
            self.open.discard(connection)

    def tls(self, context: ssl.SSLContext, connection: socket.socket, record: Json) -> None:
        self.local.record = record
        try:
            wrapped = context.wrap_socket(connection, server_side=True)
        except ssl.SSLError as error:
            record["error"] = error.reason or str(error)
            return
        self.open.add(wrapped)
        try:
            subject: Any = (wrapped.getpeercert() or {}).get("subject", ())
            record.update(
                tls=wrapped.version(),
                alpn=wrapped.selected_alpn_protocol(),
                resumed=wrapped.session_reused,
                client=next((value for rdn in subject for name, value in rdn if name == "commonName"), None),
            )
            if self.serving.get("grpc") and record["alpn"] != "h2":
                return
            self.speak(wrapped, record, record["alpn"] == "h2")
        except ssl.SSLError as error:
            record["error"] = error.reason or str(error)
        finally:
            self.open.discard(wrapped)
            with suppress(OSError):
                wrapped.close()

    def speak(self, stream: socket.socket, record: Json, h2: bool) -> None:
        (self.http2 if h2 else self.http1)(stream, record)

    def body(self, record: Json) -> bytes:
        return json.dumps({"backend": self.key, "tls": record["tls"], "sni": record["sni"]}).encode()

    def http1(self, stream: socket.socket, record: Json) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = stream.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            record["requests"].append(next(self.clock))
            body = self.body(record)
            if b"upgrade: websocket" in head.lower():
                stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
                stream.sendall(body)
                while stream.recv(65536):
                    pass
                return
            stream.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )

    def http2(self, stream: socket.socket, record: Json) -> None:
        """Speaks the part of RFC 9113 that is needed to answer a request or a unary call."""
        with stream.makefile("rb") as reading:
            reading.read(len(PREFACE))
            stream.sendall(frame(SETTINGS, 0, 0, b""))
            while True:
                head = reading.read(9)
                if len(head) < 9:
                    return
                kind, flags, number = head[3], head[4], int.from_bytes(head[5:9], "big")
                payload = reading.read(int.from_bytes(head[:3], "big"))
                if kind in (SETTINGS, PING) and not flags & ACK:
                    stream.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
                elif kind == HEADERS:
                    record["requests"].append(next(self.clock))
                if kind in (HEADERS, DATA) and flags & END_STREAM:
                    stream.sendall(self.answer(number, record))
                elif kind == GOAWAY:
                    return

    def answer(self, number: int, record: Json) -> bytes:
        body = self.body(record)
        if not self.serving.get("grpc"):
            return frame(HEADERS, END_HEADERS, number, STATUS_200) + frame(DATA, END_STREAM, number, body)
        head = STATUS_200 + literal(b"content-type", b"application/grpc")
        message = b"\0" + len(body).to_bytes(4, "big") + body
        trailers = frame(HEADERS, END_HEADERS | END_STREAM, number, literal(b"grpc-status", b"0"))
        return frame(HEADERS, END_HEADERS, number, head) + frame(DATA, 0, number, message) + trailers


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Encodes a header field (RFC 7541), never indexed and not compressed."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def context_of(serving: Json, hello: Any) -> ssl.SSLContext | None:
    if not serving.get("certificate"):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(serving["certificate"] + serving["key"])
        file.flush()
        context.load_cert_chain(file.name)
    if serving.get("version"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            version = ssl.TLSVersion["TLSv" + serving["version"].replace(".", "_")]
            context.minimum_version = context.maximum_version = version
    if serving.get("alpn"):
        context.set_alpn_protocols(serving["alpn"])
    if serving.get("client_ca"):
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=serving["client_ca"])
    context.sni_callback = hello
    return context


class Control(BaseHTTPRequestHandler):
    ports: ClassVar[dict[str, ServedPort]]

    def do_GET(self) -> None:
        kind, _, key = self.path.strip("/").partition("/")
        if kind == "records" and key in self.ports:
            self.reply(200, self.ports[key].records)
        elif kind == "healthz":
            self.reply(200, "ok")
        else:
            self.reply(404, "no such port")

    def do_POST(self) -> None:
        kind, _, key = self.path.strip("/").partition("/")
        serving = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        if kind != "serve" or key not in self.ports:
            self.reply(404, "no such port")
            return
        self.ports[key].serve(serving)
        self.reply(200, "ok")

    def reply(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: Any) -> None:
        pass


def main(path: str) -> None:
    with open(path) as file:
        config = json.load(file)
    host, clock = config["host"], itertools.count(1)
    ports = {key: ServedPort(key, host, entry["port"], entry["serving"], clock) for key, entry in config["ports"].items()}
    Control.ports = ports
    control = ThreadingHTTPServer((host, config["control"]), Control)
    control.daemon_threads = True
    threading.Thread(target=control.serve_forever, daemon=True).start()
    selector = selectors.DefaultSelector()
    for port in ports.values():
        selector.register(port.listening, selectors.EVENT_READ, port)
    listening = {"control": control.server_address[1], "ports": {key: port.number for key, port in ports.items()}}
    print(json.dumps(listening), flush=True)
    while True:
        for selected, _ in selector.select():
            with suppress(OSError):
                connection, _ = selected.data.listening.accept()
                threading.Thread(target=selected.data.accepted, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(sys.argv[1])
