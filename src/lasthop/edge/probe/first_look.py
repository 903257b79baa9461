"""Looks at a backend of which only the address is known: what it speaks, what it shows, and which name to verify."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from enum import StrEnum
from typing import Final, NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop.base.pki.parse import bare_names
from lasthop.edge.probe.certificate_view import CertificateInfo, describe
from lasthop.edge.probe.checks import addresses
from lasthop.edge.probe.handshake import Handshake, NoHandshake, glance

SECONDS: Final = 5.0
LOCALHOST: Final = "localhost"
LOOPBACKS: Final = ("127.0.0.1", "::1")


class Speaks(StrEnum):
    TLS = "TLS"
    """It has shown a certificate."""
    PLAINTEXT = "plaintext"
    """HTTP/1, that is."""
    OTHER = "another protocol"
    NOTHING = "nothing"
    """It accepts the connection and does not answer."""
    ALERT = "alert"
    """It speaks TLS, or ends the connection, and shows no certificate."""
    UNREACHABLE = "unreachable"


class Shown(NamedTuple):
    speaks: Speaks
    address: str
    """That was connected to."""
    problem: str = ""
    """Why no certificate was seen."""
    chain: tuple[CertificateInfo, ...] = ()
    version: str = ""

    @property
    def leaf(self) -> CertificateInfo | None:
        return self.chain[0] if self.chain else None


def first_look(host: str, port: int, name: str = "", seconds: float = SECONDS) -> Shown:
    """Makes a handshake that accepts everything. Without a name no SNI is sent; if the backend shows nothing then and is on
    this machine, `localhost` is."""
    found = _look(host, port, name, seconds)
    if found.speaks is Speaks.ALERT and not name and is_loopback(host):
        again = _look(found.address, port, LOCALHOST, seconds)
        return again if again.speaks is Speaks.TLS else found
    return found


def _look(host: str, port: int, name: str, seconds: float) -> Shown:
    places = LOOPBACKS if host == LOCALHOST else None
    problem, seen, address = "", None, host
    try:
        for address in places or [found for found, _ in addresses(host, port)]:
            try:
                seen = glance(address, port, name, seconds)
                break
            except NoHandshake as error:
                problem = problem or error.what
    except NoHandshake as error:
        problem = error.what
    if seen is None:
        return Shown(Speaks.UNREACHABLE, LOOPBACKS[0] if host == LOCALHOST else host, problem)
    speaks = _speaks(seen)
    if speaks in (Speaks.NOTHING, Speaks.OTHER) and _answers_http(address, port, seconds):
        speaks = Speaks.PLAINTEXT
    return Shown(speaks, address, seen.failure, _readable(seen.chain), seen.version)


def _speaks(seen: Handshake) -> Speaks:
    if seen.chain:
        return Speaks.TLS
    if seen.silent:
        return Speaks.NOTHING
    return Speaks.OTHER if seen.plaintext else Speaks.ALERT


def _answers_http(address: str, port: int, seconds: float) -> bool:
    """Returns whether a port that is silent waits for a request: some servers read a line before they judge it."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), seconds) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.0\r\n\r\n")
        return connection.recv(5) == b"HTTP/"
    return False


def _readable(chain: tuple[bytes, ...]) -> tuple[CertificateInfo, ...]:
    found = []
    for der in chain:
        with contextlib.suppress(ValueError):
            found.append(describe(der))
    return tuple(found)


def is_loopback(host: str) -> bool:
    return host == LOCALHOST or (is_ip(host) and ipaddress.ip_address(host).is_loopback)


class Name(NamedTuple):
    value: str
    """Empty: the certificate has no DNS name."""
    certain: bool = True
    """Whether the address that was typed says that this is the name."""


def name_to_verify(host: str, leaf: CertificateInfo) -> Name:
    """Returns the name that a certificate must have, of a backend that was given by its address.

    A DNS name that was typed is the name. An address says which backend is meant if the certificate holds that address too, or
    if it is loopback, where only this machine answers; elsewhere any holder of a certificate of the same CA could answer."""
    if not is_ip(host) and host != LOCALHOST:
        return Name(host)
    names = bare_names(leaf.names, "DNS")
    if host == LOCALHOST and LOCALHOST in names:
        return Name(LOCALHOST)
    # A policy's hostname has no wildcard: any name below it will do.
    plain = [each for each in names if "*" not in each] or [each.replace("*", "backend", 1) for each in names]
    holds_address = is_ip(host) and any(_same_ip(each, host) for each in bare_names(leaf.names, "IP"))
    return Name(plain[0].lower() if plain else "", holds_address or is_loopback(host))


def _same_ip(one: str, other: str) -> bool:
    return is_ip(one) and ipaddress.ip_address(one) == ipaddress.ip_address(other)


def sni_without_name(host: str, leaf: CertificateInfo) -> str:
    """Returns what to send as SNI where no name is verified: a policy must have one."""
    from lasthop.base.api.names import is_dns_subdomain

    common = leaf.subject.removeprefix("CN=").lower()
    if is_dns_subdomain(common) and not is_ip(common):
        return common
    return LOCALHOST if is_loopback(host) else "backend.internal"
