"""The gateway's handshake with a backend, made here: the same versions, ciphers, names, trust and certificate, and nothing
after it. OpenSSL stands in for Envoy's BoringSSL; tests/proxy compares the two.

One difference is known, on the safe side: an anchor that says of itself that it is no CA, and has issued the backend's
certificate all the same. Envoy takes that, and here the chain fails.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from lasthop.plan.tls import Anchors, BackendTLS, Mode
from lasthop.probe.certificate_message import AFTERWARDS, Untried, connected, watched

VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
CIPHERS: Final = (
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
)
"""Envoy's own, where a policy names none."""
NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME, for which Python has no name."""
NOT_YET_VALID, EXPIRED = 9, 10
"""X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED."""

Identity = Callable[[ssl.SSLContext], None]
"""Gives a context the Gateway's own certificate. A function, so that the key is in no value that could be shown."""


class Attempt(msgspec.Struct, frozen=True):
    chain: tuple[bytes, ...] = ()
    """DER, as far as the backend has shown it."""
    version: str = ""
    """Empty if the handshake was not finished."""
    cipher: str = ""
    alpn: str = ""
    requested: bool = False
    """The backend has asked for a client certificate."""
    unverified: int = 0
    """OpenSSL's code for what is wrong with the chain."""
    complaint: str = ""
    """The same in words."""
    failure: str = ""
    """Why the handshake, or the connection right after it, has ended otherwise."""
    plaintext: bool = False
    """What has answered does not speak TLS."""


def attempt(
    address: tuple[str, int], tls: BackendTLS, alpn: tuple[str, ...], identity: Identity | None, timeout: float, **checks: bool
) -> Attempt:
    """Raises `NoHandshake` if nothing accepts the connection, `Untried` if OpenSSL does not take what Envoy would. `checks`:
    see `_context`."""
    try:
        context = _context(tls, alpn, **checks)
        if identity:
            identity(context)
    except ssl.SSLError as error:
        said = (error.reason or str(error)).replace("_", " ").lower()
        raise Untried(
            f"this machine's OpenSSL takes not all of the CAs, ciphers or certificates to be used ({said})"
        ) from None
    seen = watched(context)
    host, port = address
    with connected(host, port, _place(host, port), timeout) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=tls.sni) as connection:
                cipher = connection.cipher()
                return Attempt(
                    seen.chain,
                    connection.version() or "",
                    cipher[0] if cipher else "",
                    connection.selected_alpn_protocol() or "",
                    seen.requested,
                    failure=_afterwards(connection) if seen.requested else "",
                )
        except ssl.SSLCertVerificationError as error:
            return Attempt(seen.chain, requested=seen.requested, unverified=error.verify_code, complaint=error.verify_message)
        except TimeoutError:
            return Attempt(seen.chain, requested=seen.requested, failure=f"no answer within {timeout:g} s", plaintext=True)
        except OSError as error:  # ssl.SSLError too
            said = (getattr(error, "reason", "") or error.strerror or str(error)).replace("_", " ").lower()
            plaintext = any(
                words in said for words in ("wrong version number", "record layer", "http request", "packet length")
            )
            return Attempt(seen.chain, requested=seen.requested, failure=said, plaintext=plaintext)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _afterwards(connection: ssl.SSLSocket) -> str:
    """With TLS 1.3 a backend judges the client's certificate, or that there is none, after the client's last word."""
    if connection.version() != "TLSv1.3":
        return ""
    connection.settimeout(AFTERWARDS)
    try:
        connection.recv(1)
    except ssl.SSLError as error:
        return (error.reason or "").replace("_", " ").lower()
    except OSError:
        pass
    return ""


def _context(tls: BackendTLS, alpn: tuple[str, ...], *, chain: bool = True, dates: bool = True) -> ssl.SSLContext:
    """As the policy asks, or without looking at dates, or at the chain at all: to find out what it is that fails. Names and
    pins are looked at afterwards."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # whoever asks for TLS 1.0 has been told so elsewhere
        context.minimum_version = VERSIONS[tls.options.lowest]
        context.maximum_version = VERSIONS[tls.options.max_version]
    # What this machine's OpenSSL finds too weak is not asked: Envoy has its own rules.
    context.set_ciphers(":".join((*(tls.options.cipher_suites or CIPHERS), "@SECLEVEL=0")))
    context.options |= getattr(ssl, "OP_LEGACY_SERVER_CONNECT", 0)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    if tls.trust is None or not chain:
        return context
    context.verify_mode = ssl.CERT_REQUIRED
    if isinstance(tls.trust, Anchors):
        context.load_verify_locations(cadata=tls.trust.pem.decode())
    else:
        context.load_verify_locations(cafile=tls.trust.path)
    # Like Envoy: an intermediate, or the backend's certificate itself, may be the anchor.
    flags = int(context.verify_flags) | ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.mode is Mode.WAIVED_EXPIRY or not dates:
        flags |= NO_CHECK_TIME
    context.verify_flags = ssl.VerifyFlags(flags)
    return context


def identity(chain: bytes, key: bytes) -> Identity:
    """Of a PEM certificate chain and its key. OpenSSL wants a file; where it can be, it is one in memory."""

    def give(context: ssl.SSLContext) -> None:
        with _file(chain.rstrip() + b"\n" + key) as path:
            context.load_cert_chain(path)

    return give


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("lasthop"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile(prefix="lasthop-") as named:  # readable for this user only
        named.write(content)
        named.flush()
        yield named.name
