"""What a Service port's `appProtocol` says of TLS."""

from __future__ import annotations

from typing import Final

H2C: Final = "kubernetes.io/h2c"
WS: Final = "kubernetes.io/ws"
WSS: Final = "kubernetes.io/wss"

PLAINTEXT: Final = frozenset(
    (
        *(H2C, WS, "h2c", "ws", "http", "http-alt", "www", "www-http"),
        *("amqp", "ftp", "imap", "ldap", "mqtt", "nntp", "pop3", "sip", "telnet"),
    )
)
"""Kubernetes' own names, and IANA's where the same protocol over TLS has a name of its own (https, wss, ldaps, secure-mqtt):
who writes one of these means plaintext."""


def says_plaintext(app_protocol: str) -> bool:
    return app_protocol.lower() in PLAINTEXT
