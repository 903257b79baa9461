"""An HTTPS listener: its certificate comes from a Secret, and a renewed one is shown without a failed request."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.backends import Backend, until
from tests.certificates import Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA, issued
from tests.proxy.lasthop import Lasthop

FIRST = Certificate("first", CA, sans=dns("api.test"))
RENEWED = Certificate("renewed", CA, sans=dns("api.test"))
TRUSTING = ssl.create_default_context(cadata=CA.pem)


def certificate_of(port: int, name: str = "api.test") -> str:
    """Returns the common name of the certificate that a verifying client gets."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        TRUSTING.wrap_socket(connection, server_hostname=name) as tls,
    ):
        der = tls.getpeercert(binary_form=True)
        assert der
        subject = x509.load_der_x509_certificate(der).subject
        return str(next(iter(subject)).value)


class Visitors:
    """A new connection for each request: each must succeed, whichever certificate it is shown."""

    def __init__(self, port: int) -> None:
        self.port, self.failures, self.count = port, list[str](), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._visit)

    def _visit(self) -> None:
        while not self._stop.is_set():
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=TRUSTING)
            connection._create_connection = self._named  # type: ignore[attr-defined]
            try:
                connection.host = "api.test"
                connection.request("GET", "/")
                if (status := connection.getresponse().status) != 200:
                    self.failures.append(str(status))
            except OSError as error:
                self.failures.append(repr(error))
            finally:
                connection.close()
            self.count += 1

    def _named(self, address: tuple[str, int], *rest: object) -> socket.socket:
        return socket.create_connection(("127.0.0.1", address[1]), timeout=30)

    def __enter__(self) -> Visitors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)


@pytest.fixture
def secured(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> Iterator[tuple[Lasthop, int, Path]]:
    lasthop, port, served = own(), free_port(), serve(issued())
    certificates = lasthop.root / "certificates"
    certificates.mkdir()
    lasthop.env["LASTHOP_ALLOW_FILES"] = str(certificates)
    save(certificates, FIRST)
    files = {f"lasthop.dev/file.tls.{part}": str(certificates / f"tls.{part}") for part in ("crt", "key")}
    lasthop.write(
        "gateway.yaml",
        docs.gateway_class(),
        docs.gateway("web", docs.http(lasthop.port), docs.https(port, "own")),
        docs.obj("v1", "Secret", "own", annotations=files),
        docs.config_map("ca", CA.pem),
        *docs.hop("api", served.port, docs.policy("api", "api.example", "ca")),
    )
    lasthop.start()
    yield lasthop, port, certificates


def save(folder: Path, certificate: Certificate) -> None:
    """As tools that renew certificates do: each file is replaced, one after the other."""
    for name, content in (("tls.crt", certificate.pem), ("tls.key", certificate.key_pem)):
        (folder / f"{name}.new").write_text(content)
        (folder / f"{name}.new").rename(folder / name)


def test_a_renewed_certificate_is_shown_and_no_request_fails(secured: tuple[Lasthop, int, Path]) -> None:
    lasthop, port, certificates = secured
    assert certificate_of(port) == "first"
    with Visitors(port) as visitors:
        until(lambda: visitors.count > 5)
        save(certificates, RENEWED)
        until(lambda: certificate_of(port) == "renewed")
        seen = visitors.count
        until(lambda: visitors.count > seen + 10)
    assert visitors.failures == []
    assert FIRST.key_pem.splitlines()[1] not in lasthop.log


def test_while_only_the_key_is_renewed_the_old_pair_is_shown_and_no_request_fails(secured: tuple[Lasthop, int, Path]) -> None:
    lasthop, port, certificates = secured

    def older() -> list[str]:
        return [not_applied["why"] for not_applied in json.loads(lasthop.ask("/api/not-applied")[1])]

    with Visitors(port) as visitors:
        (certificates / "tls.key").write_text(RENEWED.key_pem)
        until(lambda: older() == ["tls.key does not belong to tls.crt"])
        seen = visitors.count
        until(lambda: visitors.count > seen + 5)
        assert certificate_of(port) == "first"
        (certificates / "tls.crt").write_text(RENEWED.pem)
        until(lambda: certificate_of(port) == "renewed")
    assert visitors.failures == []
    assert older() == []
