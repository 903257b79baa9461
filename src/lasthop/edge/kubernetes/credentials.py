"""Declares the credentials for the API server, with their TLS settings, from a kubeconfig or a Pod."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from lasthop.edge.kubernetes.errors import ConfigError

Headers = tuple[tuple[str, str], ...]
ALWAYS: Final = 0.0
"""Value of `renew_at` for files, which may change at any time."""


class Tls(msgspec.Struct, frozen=True):
    """TLS settings, compared by content: connections stay open while the content is unchanged."""

    ca: bytes | None = None
    """PEM; None: the system's CAs."""
    verify: bool = True
    certificate: tuple[bytes, bytes] | None = None
    """Our certificate chain and its key, PEM."""

    def context(self) -> ssl.SSLContext:
        """Builds the SSL context. Raises `ConfigError` if a part cannot be parsed."""
        # Certificates are ASCII, but comments beside them may not be. For an empty text Python would use the system's CAs.
        ca = None if self.ca is None else self.ca.decode("ascii", "ignore") or " "
        try:
            context = ssl.create_default_context(cadata=ca)
        except ssl.SSLError as error:
            raise ConfigError(f"the API server's CA is not a certificate in PEM: {error}") from error
        # The CAs of many clusters lack extensions that Python 3.13 requires of a web CA (key usage); Go's clients do not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.certificate is not None:
            _load(context, *self.certificate)
        return context


class Credentials(msgspec.Struct, frozen=True):
    url: str
    tls: Tls
    headers: Headers
    """Authorization and impersonation headers."""
    server_name: str | None = None
    proxy: str | None = None
    renew_at: float | None = None
    """The time (`time.time`) from which to reload them, if they expire."""


def bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    # Python can load a certificate and its key only from files.
    with tempfile.TemporaryDirectory(prefix="lasthop-") as folder:  # a private directory
        path = Path(folder) / "pair"
        path.write_bytes(chain.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the client certificate and its key cannot be used: {error}") from error


def _no_password() -> str:
    """Rejects an encrypted key. Without this callback, OpenSSL would prompt on the terminal."""
    raise ConfigError("the key of the client certificate is encrypted, and a kubeconfig cannot contain its password")
