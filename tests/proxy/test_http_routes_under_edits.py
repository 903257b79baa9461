"""A client that keeps one HTTP/2 connection busy while everything around it is edited."""

from __future__ import annotations

import contextlib
import itertools
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued, with_alpn
from tests.proxy.echo import prefix_path, redirect, request_headers, rewrite, rule, rules
from tests.proxy.h2 import H2, Answer
from tests.proxy.lasthop import Lasthop

HOST = "busy.test"
EDITS = 100
BETWEEN = 0.05
"""Seconds: an edit takes effect in about 30 ms, so some meet the one before and some do not."""


class Busy:
    """Sends four requests at once, continuously, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = H2(port, HOST)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.answers: list[Answer] = []
        self.error: Exception | None = None

    def __enter__(self) -> Busy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        self._connection.close()

    def _ask(self) -> None:
        try:
            while not self._stop.is_set():
                self.answers += self._connection.ask_at_once(*((HOST, path) for path in ("/", "/a?b=c", "/a/b", "/other")))
        except Exception as error:
            self.error = error


class Folder:
    """Edits the policy, the route, the certificate, the endpoints and the CA."""

    def __init__(self, lasthop: Lasthop, backends: list[Backend]) -> None:
        self.lasthop, self.backends = lasthop, backends
        self.counts = {
            edit: itertools.count(1) for edit in (self.policy, self.route, self.certificate, self.endpoints, self.ca)
        }
        self.last_certificate: Certificate | None = None
        for edit in self.counts:
            edit(0)

    def edit(self, number: int) -> None:
        which = list(self.counts)[number % len(self.counts)]
        which(next(self.counts[which]))

    def policy(self, number: int) -> None:
        names = ("api.example", "other.example")
        options = {"lasthop.dev/min-tls-version": "1.3"} if number % 3 == 0 else {}
        self.lasthop.write("policy.yaml", docs.policy("busy", names[number % 2], "busy-ca", options=options))

    def ca(self, number: int) -> None:
        self.lasthop.write("ca.yaml", docs.config_map("busy-ca", (CA.pem, CA.pem + OTHER_CA.pem)[number % 2]))

    def endpoints(self, number: int) -> None:
        ports = [backend.port for backend in self.backends]
        some = (ports, ports[:1], ports[1:])[number % 3]
        self.lasthop.write("endpoints.yaml", docs.service("busy"), *docs.endpoints("busy", *some))

    def certificate(self, number: int) -> None:
        self.last_certificate = Certificate(f"listener {number}", CA, sans=dns(HOST))
        pair = {"tls_crt": self.last_certificate.pem, "tls_key": self.last_certificate.key_pem}
        self.lasthop.write("certificate.yaml", docs.secret("busy", **pair))

    def route(self, number: int) -> None:
        edits: list[dict[str, Any]] = [
            request_headers(set={"x-number": str(number)}),
            rewrite(path=prefix_path(f"/{number}")),
        ]
        listed = [rule("/", to=[docs.to("busy")], timeouts={"request": "10s"}), rule("/other", to=[docs.to("busy")])]
        listed.append(rule("/a", edits[number % 2], to=[docs.to("busy", weight=number % 4 + 1), docs.to("busy")]))
        more = [rules("busy-more", rule("/x"), host=HOST)]
        for first in range(0, 45 * (number % 2), 15):  # every other time so many that they become an index
            paths = [rule(f"/more-{first + n}", redirect(port=n + 1)) for n in range(15)]
            more.append(rules(f"busy-more-{first}", *paths, host=HOST))
        self.lasthop.write("route.yaml", rules("busy", *listed), *more)


def test_one_connection_goes_through_100_edits_without_a_failed_request(
    own: Callable[..., Lasthop], serve: Callable[..., Backend]
) -> None:
    lasthop, port = own(), free_port()
    names = ("api.example", "other.example")
    backends = [serve(with_alpn(issued(*names), *alpn)) for alpn in (("h2",), ("http/1.1",))]
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.namespace("shop"),
        docs.gateway("web", docs.http(lasthop.port), docs.https(port, "busy")),
    )
    folder = Folder(lasthop, backends)
    lasthop.start()
    lasthop.settle()
    with Busy(port) as busy:
        for number in range(EDITS):
            folder.edit(number)
            time.sleep(BETWEEN)
        lasthop.settle()
        before = len(busy.answers)
        until(lambda: len(busy.answers) > before)
    assert busy.error is None
    assert set(busy.answers) == {(200, "backend")}
    assert len(busy.answers) > before > EDITS
    # The edits were not for nothing.
    assert {c.sni for b in backends for c in b.connections if c.established} == set(names)
    assert folder.last_certificate and shown(port) == ssl.PEM_cert_to_DER_cert(folder.last_certificate.pem)
    assert not [finding for finding in lasthop.findings() if finding["severity"] == "error"]
    assert "has more than" not in lasthop.log
    assert "refused configuration" not in lasthop.log and "internal error" not in lasthop.log


def shown(port: int) -> bytes | None:
    with contextlib.closing(H2(port, HOST)) as connection:
        return connection.certificate
