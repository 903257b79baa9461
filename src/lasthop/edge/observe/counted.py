"""Says in words what Envoy only counts: an attempt that a retry made up for, a mirrored request, a question to an ExternalAuth
server are in no access log. A counter knows the kind of a failure; what the certificate was, only `lasthop probe` can say."""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = "connect timeout (TCP or TLS handshake)"
BROKEN_OFF: Final = "backend aborted the TLS handshake: perhaps it wants a client certificate"
_NOT_CONNECTED: Final = "no connection: nothing listens on the backend's port, or its address cannot be reached"
_HANDSHAKE: Final = (
    "TLS handshake failed: the backend does not speak TLS on this port, wants a client certificate, or has no TLS version or "
    "cipher in common with us"
)
_KINDS: Final = {
    "fail_verify_san": "certificate is for another name than the policy wants",
    "fail_verify_cert_hash": "certificate is not one of those that the policy pins",
    "fail_verify_error": "certificate was not accepted: it is signed by an unknown CA, has expired or is not valid yet",
    "fail_verify_no_cert": "backend has no certificate",
}
"""By Envoy's own names."""


def words(kind: str, *, timeout: bool = False) -> str:
    """Returns what counters tell of a failure. `kind`: the TLS failure that was counted most, empty if there was none;
    `timeout`: connections took too long."""
    known = _KINDS.get(kind)
    return said(known or (TIMEOUT if timeout else _HANDSHAKE if kind else _NOT_CONNECTED))


def said(text: str) -> str:
    return f"{text} (Envoy counts it, and does not say more)"
