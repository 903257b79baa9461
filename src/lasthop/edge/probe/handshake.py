"""Performs a TLS handshake with a backend. OpenSSL replaces Envoy's BoringSSL; tests/proxy compares the two.

Errors of the chain are recorded and do not end the handshake. So one connection yields the chain, all its errors, version and
ALPN, and the backend's reaction to the client's certificate. No request is sent.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurve
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from OpenSSL import SSL, crypto

from lasthop.base.api.addresses import is_ip, with_port
from lasthop.base.pki import parse
from lasthop.base.pki.revocation import revocation_lists
from lasthop.engine.plan.tls import Anchors, BackendTLS
from lasthop.engine.plan.tls_options import CIPHER_SUITES, VERSIONS

TIMEOUT: Final = 10.0
AFTERWARDS: Final = 0.5
"""Seconds to wait after a handshake with TLS 1.3, because a backend rejects the client's certificate only afterwards."""
LINGER: Final = 0.25
"""Seconds to wait after other handshakes for a backend that closes the connection before any data is sent."""
BUFFER: Final = 65536
PROTOCOLS: Final = dict(
    zip(VERSIONS, (SSL.TLS1_VERSION, SSL.TLS1_1_VERSION, SSL.TLS1_2_VERSION, SSL.TLS1_3_VERSION), strict=True)
)
GATEWAY_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
"""The gateway's versions unless a policy sets others."""
CIPHERS: Final = tuple(suite for suite in CIPHER_SUITES if suite.startswith("ECDHE") and not suite.endswith("SHA"))
"""Envoy's default suites."""
Codes = SSL.X509VerificationCodes
SKIPPED_FOR_ANCHORS: Final = (Codes.ERR_INVALID_CA, Codes.ERR_PATH_LENGTH_EXCEEDED, Codes.ERR_INVALID_PURPOSE)
"""BoringSSL checks these extensions only in certificates below the anchor, OpenSSL also in the anchor."""
NO_TLS: Final = ("wrong version number", "record layer", "http request", "packet length")
NO_CERTIFICATE: Final = ("asn1 lib", "cert length mismatch")
TOO_LARGE: Final = "excessive message size"
"""A chain of more than 100 KiB, which BoringSSL refuses too."""

Identity = Callable[[SSL.Context], None]
"""Adds the Gateway's own certificate to a context. It is a function, so that no printable value contains the key."""


class Expectation(NamedTuple):
    """Declares the gateway's offer to a backend, and its requirements."""

    tls: BackendTLS
    alpn: tuple[str, ...]
    identity: Identity | None
    """The Gateway's own certificate."""
    http: bool = True
    """Whether HTTP follows the handshake, so that the ALPN choice matters."""
    falls_back: bool = False
    """Whether the gateway falls back to HTTP/1.1 if the backend does not choose h2, the only offer."""
    grpc: bool = False
    """Whether GRPCRoutes lead to the backend, whose calls need HTTP/2."""


class Handshake(msgspec.Struct, frozen=True):
    chain: tuple[bytes, ...] = ()
    """The backend's certificates as DER, its own first, in the order in which it sent them."""
    version: str = ""
    """`TLSv1.3`; empty if the handshake was not completed."""
    cipher: str = ""
    alpn: str = ""
    group: str = ""
    """OpenSSL's name of the curve that was agreed on."""
    requested: bool = False
    """The backend has requested a client certificate."""
    chain_errors: tuple[int, ...] = ()
    """OpenSSL's codes of the chain's errors that Envoy's library reports too."""
    failure: str = ""
    """The reason why the backend or OpenSSL ended the handshake, or the connection right after it."""
    plaintext: bool = False
    """The response is not TLS, or there was none."""
    silent: bool = False
    """There was no response."""
    closed: bool = False
    """The backend closed the connection right after the handshake, without a reason."""
    aborted: bool = False
    """The backend ended the handshake without a TLS alert."""

    @property
    def unreadable(self) -> bool:
        """Returns whether one of the certificates is invalid; OpenSSL then discards the whole chain."""
        return self.failure in NO_CERTIFICATE

    @property
    def alerted(self) -> bool:
        """Returns whether the backend ended the handshake with a TLS alert."""
        return "alert" in self.failure or self.unknown_name

    @property
    def unknown_name(self) -> bool:
        """Returns whether the backend's alert rejects the SNI."""
        return "unrecognized name" in self.failure

    @property
    def too_large(self) -> bool:
        """Returns whether the chain is larger than OpenSSL and Envoy's BoringSSL accept."""
        return self.failure == TOO_LARGE

    @property
    def client_certificate(self) -> str:
        """Returns `requested` or `required`, for a client without a certificate."""
        return "" if not self.requested else "required" if self.failure else "requested"


class NoHandshake(Exception):
    """The handshake did not happen. The text contains the reason and the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message


class UnsupportedSettings(NoHandshake):
    """OpenSSL rejects settings that Envoy accepts."""


def handshake(
    address: tuple[str, int], expected: Expectation, timeout: float, curve: EllipticCurve | None = None
) -> Handshake:
    """Performs the gateway's handshake, with the same versions, ciphers, trust and certificate. Names and pins are compared
    later. Offers OpenSSL's own curves, or only `curve`, because pyOpenSSL cannot set a list.

    Raises `NoHandshake` if the connection is not accepted.
    """
    tls = expected.tls
    ciphers = ":".join(tls.options.cipher_suites or CIPHERS)
    try:
        context = _context(ciphers, expected.alpn, tls.options.lowest, tls.options.max_version)
        if curve:
            context.set_tmp_ecdh(curve)
        if tls.trust is not None:
            _trust(context, tls)
        if expected.identity:
            expected.identity(context)
    except (SSL.Error, crypto.Error, ValueError, TypeError, UnsupportedAlgorithm) as error:
        message = f"this machine's OpenSSL does not accept all of the CAs, ciphers or certificates ({_words(error)})"
        raise UnsupportedSettings(message) from None
    return _handshake(address, tls.sni, context, timeout, verify=tls.trust is not None, linger=LINGER)


def glance(host: str, port: int, server_name: str = "", timeout: float = TIMEOUT) -> Handshake:
    """Performs a handshake that accepts any certificate, version and cipher with a certificate. `server_name` is sent as SNI.

    Raises `NoHandshake` if the connection is not accepted.
    """
    return _handshake(
        (host, port), server_name, _context("ALL:!aNULL", ("h2", "http/1.1"), VERSIONS[0], VERSIONS[-1]), timeout
    )


def fetch(host: str, port: int, server_name: str = "", timeout: float = TIMEOUT) -> Handshake:
    """Performs the handshake of `glance`. Raises `NoHandshake` if the backend presents no certificate."""
    seen = glance(host, port, server_name, timeout)
    failure, at = seen.failure, with_port(host, port)
    if seen.silent:
        message = f"{at} accepts connections but does not answer a TLS handshake within {timeout:g} s"
        raise NoHandshake(message, "it may speak plaintext and wait for a request")
    if seen.chain:
        return seen
    if seen.plaintext:
        hint = "is it the port for https, or does it begin in plaintext (STARTTLS)?"
        raise NoHandshake(f"{at} does not speak TLS on this port", hint)
    if seen.aborted:
        hint = "it may not speak TLS" if server_name else "perhaps it needs a server name: --server-name NAME"
        raise NoHandshake(f"{at} closes the connection during the handshake", hint)
    if seen.unknown_name:
        client = server_name or "a client that sends no name"
        raise NoHandshake(f"{at} has no certificate for {client}", "give --server-name NAME")
    raise NoHandshake(f"{at}: the handshake failed: {failure}")


def identity(chain: bytes, key: bytes) -> Identity:
    """Returns a function that adds this PEM certificate chain and key to a context."""

    def add(context: SSL.Context) -> None:
        leaf, *above = (x509.load_der_x509_certificate(certificate.der) for certificate in _certificates(chain))
        context.use_certificate(leaf)
        for certificate in above:
            context.add_extra_chain_cert(certificate)
        # OpenSSL's check of RSA keys is skipped, as elsewhere, because it tests primes, which takes seconds.
        private_key = load_pem_private_key(key, None, unsafe_skip_rsa_key_validation=True)
        context.use_privatekey(cast("RSAPrivateKey", private_key))  # or another type; an unsupported type raises TypeError
        context.check_privatekey()

    return add


def _context(ciphers: str, alpn: tuple[str, ...], low: str, high: str) -> SSL.Context:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_min_proto_version(PROTOCOLS[low])
    context.set_max_proto_version(PROTOCOLS[high])
    # SECLEVEL=0, because Envoy has its own rules about weak settings.
    context.set_cipher_list(f"{ciphers}:@SECLEVEL=0".encode())
    context.set_options(SSL.OP_LEGACY_SERVER_CONNECT)
    if alpn:
        context.set_alpn_protos([protocol.encode() for protocol in alpn])
    return context


def _trust(context: SSL.Context, tls: BackendTLS) -> None:
    store = context.get_cert_store()
    assert store is not None
    # As in Envoy, an intermediate, or the backend's certificate itself, may be the anchor.
    store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
    if isinstance(tls.trust, Anchors):
        for certificate in _certificates(tls.trust.pem):
            store.add_cert(crypto.load_certificate(crypto.FILETYPE_ASN1, certificate.der))
        _revocations(store, tls.trust)
    elif tls.trust:
        context.load_verify_locations(tls.trust.path)


def _revocations(store: crypto.X509Store, anchors: Anchors) -> None:
    lists = revocation_lists(anchors.crl) if anchors.crl else ()
    if isinstance(lists, parse.Unreadable):
        raise ValueError(lists.message)
    for revocation_list in lists:
        store.add_crl(x509.load_pem_x509_crl(revocation_list.pem))
    if lists:
        store.set_flags(crypto.X509StoreFlags.CRL_CHECK)
        if not anchors.crl_of_leaf:
            store.set_flags(crypto.X509StoreFlags.CRL_CHECK_ALL)


def _certificates(pem: bytes) -> tuple[parse.Certificate, ...]:
    parsed = parse.certificates(pem)
    if isinstance(parsed, parse.Unreadable):
        raise ValueError(parsed.message)
    return parsed


class _Observer:
    """Records OpenSSL's callbacks during a handshake."""

    def __init__(self) -> None:
        self.requested = False
        self.errors: list[tuple[int, int]] = []
        """(code, depth); 0 is the backend's own certificate."""
        self.top = 0
        """The depth of the last certificate of the chain, which is the anchor if there is one."""

    def state(self, connection: SSL.Connection, where: int, result: int) -> None:
        if connection.get_state_string().endswith(b"read server certificate request"):
            self.requested = True

    def verify(self, connection: SSL.Connection, certificate: crypto.X509, code: int, depth: int, ok: int) -> bool:
        self.top = max(self.top, depth)
        if not ok:
            self.errors.append((code, depth))
        return True

    @property
    def chain_errors(self) -> tuple[int, ...]:
        anchor = self.top or None
        return tuple(code for code, depth in self.errors if depth != anchor or code not in SKIPPED_FOR_ANCHORS)


def _handshake(
    address: tuple[str, int],
    server_name: str,
    context: SSL.Context,
    timeout: float,
    *,
    verify: bool = False,
    linger: float = 0.0,
) -> Handshake:
    seen, version, failure, plaintext, silent, closed, aborted = _Observer(), "", "", False, False, False, False
    with _connected(*address, timeout) as plain:
        connection = _connection(context, server_name, seen, verify=verify)
        try:
            _drive(plain, connection, connection.do_handshake, timeout)
            version = connection.get_protocol_version_name()
            if wait := AFTERWARDS if seen.requested and version == "TLSv1.3" else linger:
                closed = _closes(plain, connection, wait)
        except TimeoutError:
            failure, plaintext, silent = f"no answer within {timeout:g} s", True, True
        except (OSError, SSL.Error) as error:
            failure, aborted = _words(error), _ends(error)
            plaintext = any(words in failure for words in NO_TLS)
        return Handshake(
            tuple(
                crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
                for certificate in connection.get_peer_cert_chain() or ()
            ),
            version,
            connection.get_cipher_name() or "",
            connection.get_alpn_proto_negotiated().decode(errors="replace"),
            connection.get_group_name() or "",
            seen.requested,
            seen.chain_errors,
            failure,
            plaintext,
            silent,
            closed,
            aborted,
        )


def _connection(context: SSL.Context, server_name: str, seen: _Observer, *, verify: bool) -> SSL.Connection:
    connection = SSL.Connection(context)
    connection.set_info_callback(seen.state)
    connection.set_verify(SSL.VERIFY_PEER if verify else SSL.VERIFY_NONE, seen.verify)
    connection.set_connect_state()
    if server_name and not is_ip(server_name):
        connection.set_tlsext_host_name(_sni(server_name))
    return connection


def _sni(name: str) -> bytes:
    """Encodes a name. Envoy sends a policy's hostname unchanged, so an ASCII name is not checked against IDNA's limits."""
    if name.isascii():
        return name.encode()
    try:
        return name.encode("idna")
    except UnicodeError:
        raise NoHandshake(f"{name} is not a DNS name", "correct --server-name") from None


def _closes(plain: socket.socket, connection: SSL.Connection, seconds: float) -> bool:
    """Returns whether the backend closes the connection within this time, before any data is sent. Raises if it sends a TLS
    alert."""
    try:
        _drive(plain, connection, lambda: connection.recv(1), seconds)
    except TimeoutError:
        return False
    except (OSError, SSL.Error) as error:
        if not _ends(error):
            raise
        return True
    return False


def _ends(error: OSError | SSL.Error) -> bool:
    """Returns whether a connection ends without a TLS alert: closed, reset, or cut off."""
    return isinstance(error, OSError | SSL.SysCallError | SSL.ZeroReturnError) or "eof" in _words(error)


@contextlib.contextmanager
def _connected(host: str, port: int, timeout: float) -> Iterator[socket.socket]:
    at = with_port(host, port)
    try:
        connection = socket.create_connection((host, port), timeout)
    except (socket.gaierror, UnicodeError):  # UnicodeError: a label is longer than 63 characters
        raise NoHandshake(f"{host} is not found in DNS", "correct the name, or give the address and --server-name") from None
    except TimeoutError:
        hint = "is the address right, and does a firewall let you through?"
        raise NoHandshake(f"{at} does not answer within {timeout:g} s", hint) from None
    except ConnectionRefusedError:
        raise NoHandshake(f"{at} refuses the connection: nothing listens on this port", "is the port right?") from None
    except OSError as error:
        raise NoHandshake(f"{at} cannot be reached: {error.strerror or error}") from None
    with connection:
        yield connection


def _drive(plain: socket.socket, connection: SSL.Connection, step: Callable[[], Any], timeout: float) -> None:
    """Repeats a step of OpenSSL until it succeeds. The deadline applies to all repetitions, even if bytes arrive slowly or
    endlessly. OpenSSL itself never waits, because all data passes through memory buffers."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            step()
            return
        except SSL.WantReadError:
            pass
        finally:
            # A backend that no longer reads may have sent the reason before.
            with contextlib.suppress(SSL.WantReadError, OSError):
                while True:
                    plain.sendall(connection.bio_read(BUFFER))
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        plain.settimeout(remaining)
        if data := plain.recv(BUFFER):
            connection.bio_write(data)
        else:
            connection.bio_shutdown()


def _words(error: Exception) -> str:
    """Returns OpenSSL's last error text, which is the most general."""
    match error:
        case SSL.SysCallError(args=(_, text)) | OSError(strerror=str(text)):
            return str(text).lower()
        case SSL.Error(args=[[*_, (*_, text)]]) | crypto.Error(args=[[*_, (*_, text)]]):
            return str(text).lower()
    return str(error) or type(error).__name__
