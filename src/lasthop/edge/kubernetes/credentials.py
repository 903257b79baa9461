"""What a kubeconfig or a Pod says of the API server, and what it is shown."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from lasthop.edge.kubernetes.errors import ConfigError

Headers = tuple[tuple[str, str], ...]
ALWAYS: Final = 0.0
"""For `renew_at`: the source is a file, which may have changed whenever it is looked at."""


class Tls(msgspec.Struct, frozen=True):
    """Compared by its content: a connection goes on while that has not changed."""

    ca: bytes | None = None
    """PEM; the system's CAs without it."""
    verify: bool = True
    certificate: tuple[bytes, bytes] | None = None
    """Our chain and its key, PEM."""

    def context(self) -> ssl.SSLContext:
        """Raises `ConfigError` if something of it cannot be read."""
        # Certificates are ASCII; comments beside them need not be. Of an empty text Python would take the system's CAs.
        ca = None if self.ca is None else self.ca.decode("ascii", "ignore") or " "
        try:
            context = ssl.create_default_context(cadata=ca)
        except ssl.SSLError as error:
            raise ConfigError(f"the API server's CA is not a certificate in PEM: {error}") from error
        # Many clusters' own CAs lack what Python 3.13 requires of a web CA (key usage); Go's clients do not require it.
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
    """Who we are: Authorization, and whom we act for."""
    server_name: str | None = None
    proxy: str | None = None
    renew_at: float | None = None
    """The time (`time.time`) from which to read them again, if they change by themselves."""


def bearer(token: str) -> Headers:
    return (("Authorization", f"Bearer {token}"),)


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    # OpenSSL's functions for this, as Python has them, only read files.
    with tempfile.TemporaryDirectory(prefix="lasthop-") as folder:  # nobody else may look into it
        path = Path(folder) / "pair"
        path.write_bytes(chain.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"the client certificate and its key cannot be used: {error}") from error


def _no_password() -> str:
    """Refuses an encrypted key, for which OpenSSL would ask on the terminal."""
    raise ConfigError("the key of the client certificate is encrypted, which a kubeconfig has no password for")
