"""Clients of HTTPS listeners that show a certificate."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import tempfile
from pathlib import Path

from tests.certificates import Certificate


def shown(own: Certificate | None) -> ssl.SSLContext:
    """Makes a client that verifies nothing, and presents this certificate on request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "both.pem")
            file.write_text(own.pem + own.key_pem)
            context.load_cert_chain(file)
    return context


def visit(port: int, own: Certificate | None) -> int | None:
    """The status; None if no connection was made."""
    with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=shown(own))) as connection:
        try:
            connection.request("GET", "/", headers={"Host": "site.test"})
            return connection.getresponse().status
        except (ssl.SSLError, ConnectionError, http.client.RemoteDisconnected):
            return None
