"""Explains why a request failed. Envoy reports failures in OpenSSL's terms. The patterns match texts of real Envoys (see the
test).

The sentences are for the operator's log: they contain text from the backend's certificate, so they never reach the client.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from lasthop.edge.proxy.entry import CUT, AccessLogEntry, shown
from lasthop.engine.plan.cluster_metadata import names as accepted
from lasthop.engine.plan.cluster_metadata import source
from lasthop.engine.plan.messages import probe_command
from lasthop.engine.plan.upstream import Hop, Protocol

Sentence = Callable[[AccessLogEntry, re.Match[str]], str]

STALE_TLS_ERROR: Final = "CONNECTION_REJECTED"
"""An error that a listener inspecting a ClientHello leaves behind on Envoy's thread. It never belongs to a connection to a
backend, but appears on a connection that failed without a TLS error (a timeout)."""
EXT_AUTHZ_ERROR: Final = "ext_authz_error"
"""Envoy's response code details of a request that the ExternalAuth server neither allowed nor denied."""
BODY_TOO_LARGE: Final = "request_payload_exceeded_retry_buffer_limit"
"""Envoy's response code details of a request whose connection failed and whose body was too large to retry."""
_NAMES_SHOWN: Final = 5
_CLOSED: Final = "backend closed the connection before it responded"
_H2_ALONE: Final = "an HTTP/2-only backend closes WebSocket connections this way"


def explained(entry: AccessLogEntry) -> AccessLogEntry:
    """Returns the entry with the reason of the failure and the command that shows more."""
    why = explain_failure(entry)
    return msgspec.structs.replace(entry, why=why, advice=_advice(entry) if why else None)


def explain_failure(entry: AccessLogEntry) -> str | None:
    """Returns the reason, or None if the request reached the backend: after a success, or an error of the backend itself."""
    entry = without_earlier_attempts(entry)
    if entry.tls_failure and (why := _transport_failure(entry, entry.tls_failure)):
        return shown(why)
    explanation = _explanation(entry)
    return shown(explanation(entry)) if explanation else None


def _explanation(entry: AccessLogEntry) -> Callable[[AccessLogEntry], str] | None:
    """Returns the function that explains a failure without a TLS error."""
    flags = (entry.flags or "").split(",")
    if explanation := next((_FLAGS[flag] for flag in flags if flag in _FLAGS), _DETAILS.get(entry.details or "")):
        return explanation
    # A TCP connection has no status, and ends without a flag.
    if entry.status is None and flags == ["-"]:
        return _ended_at_once
    # The direct response in place of an invalid backend.
    return _no_cluster if entry.details == "direct_response" and (entry.status or 0) >= 500 else None


def _transport_failure(entry: AccessLogEntry, failure: str) -> str:
    """Explains Envoy's text about the connection; empty if the text belongs to another connection."""
    for pattern, sentence in _TRANSPORT:
        if match := re.search(pattern, failure):
            return sentence(entry, match)
    return "" if STALE_TLS_ERROR in failure else f"connection to the backend failed: {_plain(failure)}"


def without_earlier_attempts(entry: AccessLogEntry) -> AccessLogEntry:
    """Removes the flag and error of earlier attempts from the entry of a connection that succeeded at a later attempt."""
    flags = (entry.flags or "-").split(",")
    if entry.status or "UF" not in flags or "URX" in flags:
        return entry
    remaining = ",".join(flag for flag in flags if flag != "UF")
    return msgspec.structs.replace(entry, flags=remaining or "-", tls_failure=None)


def _policy(entry: AccessLogEntry) -> str:
    """Returns the policy's name, or kind and name of the XBackend."""
    if not entry.policy:
        return "the policy"
    key = source(entry.policy)
    return f"policy {key.path}" if key.kind == "BackendTLSPolicy" else str(key)


def _wrong_name(entry: AccessLogEntry, match: re.Match[str]) -> str:
    names = [name for name in match[1].split(",_") if name]
    listed = ", ".join(names[:_NAMES_SHOWN])
    if (entry.tls_failure or "").endswith(CUT):
        listed += " and more"  # the log's text is truncated, so the number is unknown
    elif len(names) > _NAMES_SHOWN:
        listed += f" and {len(names) - _NAMES_SHOWN} more"
    certificate = (
        f"certificate is for {listed}" if names else "certificate has no subjectAltName (a common name does not count)"
    )
    return f"{certificate}, {_policy(entry)} wants {' or '.join(accepted(entry.wants or '')) or 'another name'}"


def _certificate_at(match: re.Match[str]) -> str:
    """Names the certificate at a depth: 0 is the backend's own, the others signed it."""
    return "certificate" if match[1] == "0" else "certificate of the CA that signed the backend's"


def _unknown_ca(entry: AccessLogEntry, _: re.Match[str]) -> str:
    return (
        f"certificate is signed by an unknown CA (not by the CA of {_policy(entry)}, "
        "or the backend leaves out an intermediate certificate)"
    )


def _self_signed(entry: AccessLogEntry, _: re.Match[str]) -> str:
    return f"self-signed certificate, which is not among those that {_policy(entry)} trusts"


def _revoked(entry: AccessLogEntry, match: re.Match[str]) -> str:
    return "certificate revoked" if match[1] == "0" else f"{_certificate_at(match)} is revoked"


def _no_list(entry: AccessLogEntry, match: re.Match[str]) -> str:
    return f"the issuer of the {_certificate_at(match)} has no revocation list, and {_policy(entry)} has lists of other CAs"


def _not_verified(entry: AccessLogEntry, match: re.Match[str]) -> str:
    return f"{_certificate_at(match)} was not accepted: {_plain(match[2])}"


def _sentence(text: str) -> Sentence:
    return lambda entry, match: text


_VERIFY: Final = r"certificate_verification_error_at_depth_(\d+):_"
_REVOCATION: Final = _VERIFY + "certificate_revocation_check_against_provided_CRLs_failed:_"

_TRANSPORT: Final[tuple[tuple[str, Sentence], ...]] = (
    # The names are the certificate's own text, so they are matched first and up to the last bracket.
    (rf"(?s)SAN_matcher,_certificate_SANs_are_\[(.*)(?:\]|{re.escape(CUT)}$)", _wrong_name),
    (_VERIFY + "unable_to_get_(?:local_)?issuer_certificate", _unknown_ca),
    (_VERIFY + "self_signed_certificate_in_certificate_chain", _unknown_ca),
    (_VERIFY + "self_signed_certificate", _self_signed),
    (_VERIFY + "certificate_has_expired", lambda entry, match: f"{_certificate_at(match)} has expired"),
    (_VERIFY + "certificate_is_not_yet_valid", lambda entry, match: f"{_certificate_at(match)} is not valid yet"),
    (
        _VERIFY + "unsupported_certificate_purpose",
        _sentence("certificate is not for servers (its extended key usage lacks serverAuth)"),
    ),
    (_REVOCATION + "certificate_revoked", _revoked),
    (_REVOCATION + "unable_to_get_certificate_CRL", _no_list),
    (_VERIFY + "([^:}]+)", _not_verified),
    ("cert_hash_and_spki", lambda entry, match: f"certificate is not one of those that {_policy(entry)} pins"),
    ("KEY_USAGE_BIT_INCORRECT", _sentence("certificate's key usage lacks digitalSignature, which TLS needs")),
    ("WRONG_VERSION_NUMBER", _sentence("backend does not speak TLS on this port (it answered in plaintext)")),
    ("CERTIFICATE_REQUIRED", _sentence("backend wants a client certificate, and the Gateway has none")),
    (
        "ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|CERTIFICATE_|ACCESS_DENIED|DECRYPT_ERROR)",
        lambda entry, match: f"backend refuses {_client_certificate(entry)}",
    ),
    ("ALERT_PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL", _sentence("no common TLS version with the backend")),
    (
        "HANDSHAKE_FAILURE_ON_CLIENT_HELLO|INSUFFICIENT_SECURITY",
        _sentence("no common TLS cipher, curve or version with the backend"),
    ),
    # TLS 1.2 has no alert of its own for a missing client certificate.
    (
        "ALERT_HANDSHAKE_FAILURE",
        lambda entry, match: f"backend {_client_certificate_demand(entry)}, or has no TLS cipher or curve in common with us",
    ),
    ("UNRECOGNIZED_NAME", lambda entry, match: f"backend does not serve the hostname that {_policy(entry)} sends as SNI"),
    ("NO_APPLICATION_PROTOCOL", lambda entry, match: f"no common protocol with the backend (ALPN: {_offered(entry)})"),
    ("_ALERT_([A-Z_]+)", lambda entry, match: f"backend aborted the TLS handshake (alert: {_plain(match[1])})"),
    ("Secret_is_not_supplied_by_SDS", _sentence("the Gateway's client certificate has not reached the proxy")),
    ("Connection_refused", _sentence("connection refused: nothing listens on the backend's port")),
    ("No_route_to_host|Network_is_unreachable|Host_is_down", _sentence("backend's address cannot be reached")),
    ("Connection_reset_by_peer|Broken_pipe", _sentence("backend reset the connection during the TLS handshake")),
    ("(?i)timed?_?out", _sentence("connect timeout (TCP or TLS handshake)")),
)


def _connection_failure(entry: AccessLogEntry) -> str:
    """Explains `UF` without a TLS error, which means that the backend sent nothing."""
    tls = "TLS handshake" if entry.policy else "connection set-up"
    if "timeout" in (entry.details or ""):
        return "connect timeout (TCP or TLS handshake)" + (": perhaps the backend does not speak TLS" if entry.policy else "")
    return f"backend closed the connection during the {tls}"


def _offered(entry: AccessLogEntry) -> str:
    if entry.upgrade:
        return "HTTP/1.1 alone, which a WebSocket needs"
    hop = Hop.parse(entry.upstream_cluster or "")
    return "HTTP/2 alone, which gRPC needs" if hop and hop.protocol is Protocol.H2 else "HTTP/2 or HTTP/1.1"


def closed(entry: AccessLogEntry) -> str:
    """Describes a connection that the backend closed, without a cause."""
    # The backend was offered only http/1.1, which some TLS libraries treat as no ALPN at all.
    return f"{_CLOSED} ({_H2_ALONE})" if entry.policy and entry.upgrade else _CLOSED


def refused_after_handshake(entry: AccessLogEntry) -> str:
    """Attributes a connection that ended at once to the backend, because Envoy has counted a TLS error."""
    return shown(f"{_CLOSED} (with TLS 1.3 a backend does this if it {_client_certificate_demand(entry)})")


def _connection_end(entry: AccessLogEntry) -> str:
    """Explains `UC`. One line cannot distinguish a backend that rejects the client's certificate from one that speaks another
    protocol; `probe` can."""
    if entry.policy and entry.upgrade:
        return f"{_CLOSED} ({_H2_ALONE}; with TLS 1.3 also a backend that {_client_certificate_demand(entry)})"
    if entry.policy:
        condition = f"if it {_client_certificate_demand(entry)}, or speaks another protocol than ALPN offers"
        return f"{_CLOSED} (with TLS 1.3 a backend does this {condition})"
    return _CLOSED


def _ended_at_once(entry: AccessLogEntry) -> str:
    return (
        "connection ended right after the TLS handshake, before the backend had sent anything: the client left, or the "
        f"backend closed it (with TLS 1.3 it does this if it {_client_certificate_demand(entry)})"
    )


def _client_certificate(entry: AccessLogEntry) -> str:
    return f"the client certificate of {entry.shows}" if entry.shows else "the Gateway's client certificate"


def _client_certificate_demand(entry: AccessLogEntry) -> str:
    """Describes the client certificate that the backend expects."""
    return f"refuses {_client_certificate(entry)}" if entry.shows else "wants a client certificate"


def _advice(entry: AccessLogEntry) -> str | None:
    """Returns the command that shows more about a failed request, unless the reason itself names one."""
    flags = (entry.flags or "").split(",")
    if _explanation(entry) in (_no_cluster, _unanswered) and not entry.tls_failure:
        return None
    hop = Hop.parse(entry.upstream_cluster or "")
    if "UH" in flags and hop:
        return f"lasthop explain {hop.backend.argument}"
    return probe_command(source(entry.policy)) if entry.policy else None


def _reset(entry: AccessLogEntry) -> str:
    if entry.status is None:  # a connection, not a request
        return _connection_end(entry)
    return (
        "backend reset the request before it responded (over HTTP/2 a server refuses unknown requests like this; a "
        "gRPC server does so with requests that are not gRPC calls)"
    )


def _not_http(entry: AccessLogEntry) -> str:
    hop = Hop.parse(entry.upstream_cluster or "")
    if hop and hop.protocol is Protocol.H2:
        return "backend does not answer in HTTP/2, which gRPC needs"
    return "backend's response is not valid HTTP"


def _no_cluster(entry: AccessLogEntry) -> str:
    return (
        "no usable backend: its BackendTLSPolicy, its backendRef or the client certificate of the Gateway is "
        "invalid; see `lasthop status`"
    )


def _body_too_large(entry: AccessLogEntry) -> str:
    return (
        "connection to one endpoint failed, and the request was not retried at another one: its body had already exceeded the "
        "retry buffer (64 KiB)"
    )


def _unanswered(entry: AccessLogEntry) -> str:
    return (
        f"the ExternalAuth server of {entry.route or 'the route'} (or of its listener) did not answer, or gave no "
        "decision: its certificate does not match, its BackendTLSPolicy or backendRef is invalid, it is unreachable, or it "
        "responds with 5xx; see `lasthop explain`"
    )


_FLAGS: Final[dict[str, Callable[[AccessLogEntry], str]]] = {
    "UF": _connection_failure,
    "UC": _connection_end,
    "UR": _reset,
    "LR": lambda entry: "the gateway aborted the request before the backend responded",
    "NC": _no_cluster,
    "UH": lambda entry: "backend has no ready endpoint",
    "UO": lambda entry: "too many connections or requests to this backend (circuit breaker)",
    "UT": lambda entry: "backend did not respond in time",
    "SI": lambda entry: "no data in either direction for too long (idle timeout)",
    "OM": lambda entry: "the proxy is overloaded and refuses requests",
    "UPE": _not_http,
    "NR": lambda entry: "no route matches this host and path",
}

_DETAILS: Final[dict[str, Callable[[AccessLogEntry], str]]] = {EXT_AUTHZ_ERROR: _unanswered, BODY_TOO_LARGE: _body_too_large}
"""Explanations by Envoy's response code details."""


def _plain(reason: str) -> str:
    """Shortens `TLS_error:|268435581:SSL_routines:OPENSSL_internal:SOME_WORDS:TLS_error_end` -> `some words`."""
    reason = re.sub(r"TLS_error:\|?|:?TLS_error_end|\d+:|SSL_routines:|OPENSSL_internal:|system_library:", "", reason)
    return reason.replace("_", " ").strip(" :").lower() or "no reason given"
