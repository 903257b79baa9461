"""A TLS handshake with a backend, to see what it shows. Nothing is verified and nothing is sent after it.

There are two ways in which a backend that wants a client certificate ends the connection: with TLS 1.2 inside the handshake,
with TLS 1.3 after it. In both it has shown its own certificate before, so the messages are looked at as they pass.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

import msgspec

TIMEOUT: Final = 10.0
AFTERWARDS: Final = 0.5
"""Seconds to wait after a handshake for the backend to say that it wanted a certificate."""
CERTIFICATE, CERTIFICATE_REQUEST = 11, 13
GATEWAY_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""What the gateway speaks to backends unless a policy says otherwise."""


class Handshake(msgspec.Struct, frozen=True):
    chain: tuple[bytes, ...]
    """The backend's certificates as DER, its own first, as it has sent them."""
    version: str = ""
    """`TLSv1.3`; empty if the handshake was not finished."""
    cipher: str = ""
    alpn: str = ""
    client_certificate: str = ""
    """`requested` or `required`: whether the backend has asked for one, which it did not get."""


class NoHandshake(Exception):
    """Nothing was seen; the message says why and what to do."""


class Untried(NoHandshake):
    """It is for want of this machine that nothing was seen."""


def handshake(host: str, port: int, server_name: str = "", timeout: float = TIMEOUT) -> Handshake:
    """`server_name` is sent as SNI; empty: none is."""
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    context = _context()
    seen = watched(context)
    with connected(host, port, place, timeout) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=server_name or None) as connection:
                leaf = connection.getpeercert(binary_form=True)
                cipher = connection.cipher()
                return Handshake(
                    seen.chain or ((leaf,) if leaf else ()),
                    connection.version() or "",
                    cipher[0] if cipher else "",
                    connection.selected_alpn_protocol() or "",
                    _wanted(seen, refused=_refused_afterwards(connection)),
                )
        except TimeoutError:
            message = f"{place} accepts connections but does not answer a TLS handshake within {timeout:g} s"
            raise NoHandshake(f"{message}; perhaps it speaks plaintext and waits for a request") from None
        except OSError as error:  # ssl.SSLError too
            if seen.chain:
                return Handshake(seen.chain, client_certificate=_wanted(seen, refused=True))
            raise NoHandshake(_failure(place, error, server_name)) from None


def _context() -> ssl.SSLContext:
    """Takes whatever it is shown: it is there to be looked at, and an old or weak backend shows a certificate too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class Seen:
    """The handshake messages that concern certificates, as they come."""

    def __init__(self) -> None:
        self.chain: tuple[bytes, ...] = ()
        self.requested = False

    def __call__(self, connection: Any, direction: str, version: Any, content: Any, message: Any, data: bytes) -> None:
        if direction != "read":
            return
        if message == CERTIFICATE_REQUEST:
            self.requested = True
        elif message == CERTIFICATE:
            self.chain = tuple(certificates(data[4:]))


def watched(context: ssl.SSLContext) -> Seen:
    """What connections of this context will be shown. It is not a public way, but the only one to see the whole chain (before
    Python 3.13) and what a failed handshake has shown."""
    seen = Seen()
    context._msg_callback = seen  # type: ignore[attr-defined]
    return seen


def certificates(body: bytes) -> Iterator[bytes]:
    """Out of a Certificate message (RFC 5246 7.4.2, RFC 8446 4.4.2): a list that with TLS 1.3 has a context before it, and
    extensions after each entry. Which it is shows in the length that comes first. It is looked at before anybody has
    checked it, so it may be cut off anywhere."""
    if len(body) < 4:
        return
    tls13 = int.from_bytes(body[:3], "big") != len(body) - 3
    at = 1 + body[0] if tls13 else 0
    end = at + 3 + int.from_bytes(body[at : at + 3], "big")
    at += 3
    while at + 3 <= min(end, len(body)):
        length = int.from_bytes(body[at : at + 3], "big")
        yield body[at + 3 : at + 3 + length]
        at += 3 + length
        if tls13:
            at += 2 + int.from_bytes(body[at : at + 2], "big")


@contextlib.contextmanager
def connected(host: str, port: int, place: str, timeout: float) -> Iterator[socket.socket]:
    try:
        connection = socket.create_connection((host, port), timeout)
    except socket.gaierror:
        raise NoHandshake(f"{host} is not found in DNS; correct the name, or give the address and --server-name") from None
    except TimeoutError:
        message = f"{place} does not answer within {timeout:g} s; is the address right, and does a firewall let you through?"
        raise NoHandshake(message) from None
    except ConnectionRefusedError:
        raise NoHandshake(f"{place} refuses the connection: nothing listens on this port; is the port right?") from None
    except OSError as error:
        raise NoHandshake(f"{place} cannot be reached: {error.strerror or error}") from None
    with connection:
        yield connection


def _refused_afterwards(connection: ssl.SSLSocket) -> bool:
    if connection.version() != "TLSv1.3":
        return False
    connection.settimeout(AFTERWARDS)
    try:
        connection.recv(1)
    except ssl.SSLError as error:
        return "certificate required" in str(error).lower().replace("_", " ")
    except OSError:
        pass
    return False


def _wanted(seen: Seen, *, refused: bool) -> str:
    return "required" if seen.requested and refused else "requested" if seen.requested else ""


def _failure(place: str, error: OSError, server_name: str) -> str:
    said = (getattr(error, "reason", "") or "").replace("_", " ").lower()
    if "wrong version number" in said or "record layer" in said or "http request" in said:
        return f"{place} does not speak TLS on this port; is it the port for https, or does it begin in plaintext (STARTTLS)?"
    if isinstance(error, ConnectionResetError | ssl.SSLEOFError) or "eof" in said:
        name = "" if server_name else "; perhaps it wants a name: --server-name NAME"
        return f"{place} ends the connection in the middle of the handshake{name or '; perhaps it does not speak TLS'}"
    if "unrecognized name" in said:
        return f"{place} knows no certificate for {server_name or 'a client that asks for no name'}; give --server-name NAME"
    return f"{place}: the handshake failed: {said or error.strerror or error}"
