"""Inspects a backend known only by its address: its protocol, its certificate, and the name to verify."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from enum import StrEnum
from typing import Final, NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.names import is_dns_subdomain
from lasthop.base.pki.parse import bare_names
from lasthop.edge.probe.certificate_view import CertificateInfo, describe
from lasthop.edge.probe.checks import addresses
from lasthop.edge.probe.handshake import Handshake, NoHandshake, glance

SECONDS: Final = 5.0
LOCALHOST: Final = "localhost"
LOOPBACKS: Final = ("127.0.0.1", "::1")


class Speaks(StrEnum):
    TLS = "TLS"
    """The backend presented a certificate."""
    PLAINTEXT = "plaintext"
    """The backend speaks HTTP/1."""
    OTHER = "another protocol"
    NOTHING = "nothing"
    """The backend accepts the connection and does not respond."""
    ALERT = "alert"
    """The backend responds with a TLS alert and presents no certificate."""
    TOO_LARGE = "too large"
    """The backend presents more certificates than Envoy reads."""
    BROKEN = "broken"
    """The backend answers with something that resembles TLS."""
    CLOSED = "closed"
    """The backend ends the connection without a TLS alert."""
    UNREACHABLE = "unreachable"


class BackendLook(NamedTuple):
    speaks: Speaks
    address: str
    """The connected address."""
    problem: str = ""
    """The reason why no certificate was received."""
    chain: tuple[CertificateInfo, ...] = ()
    version: str = ""
    unknown_name: bool = False
    """The backend's alert rejects the SNI."""

    @property
    def leaf(self) -> CertificateInfo | None:
        return self.chain[0] if self.chain else None


def first_look(host: str, port: int, name: str = "", seconds: float = SECONDS) -> BackendLook:
    """Performs a handshake that accepts everything. Without a name it sends no SNI. If a backend on this machine then presents
    no certificate, it tries again with `localhost`."""
    look = _look(host, port, name, seconds)
    if look.speaks in (Speaks.ALERT, Speaks.CLOSED) and not name and is_loopback(host):
        retry = _look(look.address, port, LOCALHOST, seconds)
        return retry if retry.speaks is Speaks.TLS else look
    return look


def _look(host: str, port: int, name: str, seconds: float) -> BackendLook:
    candidates = LOOPBACKS if host == LOCALHOST else None
    problem, seen, address = "", None, host
    try:
        for address in candidates or [look for look, _ in addresses(host, port)]:
            try:
                seen = glance(address, port, name, seconds)
                break
            except NoHandshake as error:
                problem = problem or error.message
    except NoHandshake as error:
        problem = error.message
    if seen is None:
        return BackendLook(Speaks.UNREACHABLE, LOOPBACKS[0] if host == LOCALHOST else host, problem)
    speaks = _speaks(seen)
    if speaks in (Speaks.NOTHING, Speaks.OTHER) and _answers_http(address, port, seconds):
        speaks = Speaks.PLAINTEXT
    return BackendLook(speaks, address, seen.failure, _readable(seen.chain), seen.version, seen.unknown_name)


def _speaks(seen: Handshake) -> Speaks:
    if seen.chain:
        return Speaks.TLS
    if seen.silent:
        return Speaks.NOTHING
    if seen.plaintext:
        return Speaks.OTHER
    if seen.aborted:
        return Speaks.CLOSED
    return Speaks.TOO_LARGE if seen.too_large else Speaks.ALERT if seen.alerted else Speaks.BROKEN


def _answers_http(address: str, port: int, seconds: float) -> bool:
    """Returns whether a silent port waits for a request: some servers read a line before they respond."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), seconds) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.0\r\n\r\n")
        return connection.recv(5) == b"HTTP/"
    return False


def _readable(chain: tuple[bytes, ...]) -> tuple[CertificateInfo, ...]:
    readable = []
    for der in chain:
        with contextlib.suppress(ValueError):
            readable.append(describe(der))
    return tuple(readable)


def is_loopback(host: str) -> bool:
    return host == LOCALHOST or (is_ip(host) and ipaddress.ip_address(host).is_loopback)


class VerifiedName(NamedTuple):
    value: str
    """Empty if the certificate has no DNS name."""
    certain: bool = True
    """Whether the typed address proves the name."""


def name_to_verify(host: str, leaf: CertificateInfo) -> VerifiedName:
    """Returns the name that the certificate of a backend with this address must have.

    If the user typed a DNS name, it is that name. An IP address identifies the backend if the certificate contains it, or if
    it is loopback, where only this machine responds. Otherwise any holder of a certificate of the same CA could respond.
    """
    if not is_ip(host) and host != LOCALHOST:
        return VerifiedName(host)
    names = [name.lower() for name in bare_names(leaf.names, "DNS")]
    if host == LOCALHOST and LOCALHOST in names:
        return VerifiedName(LOCALHOST)
    # A policy's hostname has no wildcard, so any name below the wildcard serves. The names are untrusted, and the chosen name
    # becomes part of the objects.
    candidates = [name for name in names if "*" not in name] + [name.replace("*", "backend", 1) for name in names]
    plain = [name for name in candidates if is_dns_subdomain(name) and not is_ip(name)]
    holds_address = is_ip(host) and any(_same_ip(name, host) for name in bare_names(leaf.names, "IP"))
    return VerifiedName(plain[0] if plain else "", holds_address or is_loopback(host))


def _same_ip(name: str, address: str) -> bool:
    return is_ip(name) and ipaddress.ip_address(name) == ipaddress.ip_address(address)


def sni_without_name(host: str, leaf: CertificateInfo) -> str:
    """Returns the SNI to send if no name is verified, because a policy requires one."""
    common = leaf.subject.removeprefix("CN=").lower()
    if is_dns_subdomain(common) and not is_ip(common):
        return common
    return LOCALHOST if is_loopback(host) else "backend.internal"
