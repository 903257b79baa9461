"""Sanitizes texts of backends and clients for display, and describes failures that Envoy only counts."""

from __future__ import annotations

from typing import Final

from lasthop.base.text.printable import printable
from lasthop.engine.plan.observation import MAX_NAMES, MAX_WORDS, LeafCertificate


def cut(text: str) -> str:
    text = printable(text[: MAX_WORDS + 1])
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


def shown(certificate: LeafCertificate | None) -> LeafCertificate | None:
    """Returns the certificate with shortened texts and a limited number of names."""
    if certificate is None:
        return None
    names = tuple(map(cut, certificate.names[:MAX_NAMES]))
    return LeafCertificate(
        cut(certificate.subject), cut(certificate.issuer), names, certificate.not_before, certificate.not_after
    )


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
"""Descriptions by Envoy's name of the failure."""


def of_counters(kind: str, *, timeout: bool = False) -> str:
    """Describes a failure from counters. `kind`: the TLS failure that was counted most, or empty; `timeout`: connections timed
    out."""
    description = _KINDS.get(kind)
    return counted_only(description or (TIMEOUT if timeout else _HANDSHAKE if kind else _NOT_CONNECTED))


def counted_only(text: str) -> str:
    """Marks a reason that no access log confirms: an attempt before a successful retry, a mirrored request, a request to an
    ExternalAuth server. A counter shows the kind of a failure; only `lasthop probe` shows the certificate."""
    return f"{text} (from Envoy's counters, without details)"
