"""Derives evidence about the connection to the backend from a line of the access log.

A backend's own 5xx proves nothing against the connection, and neither does a client that disconnected.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from lasthop.base.api.meta import Key
from lasthop.edge.observe.evidence import ConnectionOutcome, ServedRequest
from lasthop.edge.proxy.entry import AccessLogEntry, shown
from lasthop.edge.proxy.failures import STALE_TLS_ERROR, closed, refused_after_handshake, without_earlier_attempts
from lasthop.engine.plan.observation import LeafCertificate
from lasthop.engine.plan.upstream import Connection, Hop

TLS_1_3: Final = "TLSv1.3"
_FAILURES: Final = frozenset({"UF", "NC", "UH", "UO"})
_STREAM_FAILURES: Final = frozenset({"URX", "NC", "UH", "UO"})
"""These flags exclude UF, because a connection that succeeded at the second attempt has UF too."""
_UNANSWERED: Final = frozenset({"UC", "UR", "UPE"})
"""Flags of a request without a response: the backend closed the connection, reset the request, or did not answer in HTTP."""
GRPC_FAILED: Final = frozenset({"Unknown", "DeadlineExceeded", "Internal", "Unavailable", "DataLoss"})
"""gRPC statuses that the log of failures contains."""
_ENDS: Final = frozenset({"DownstreamEnd", "TcpConnectionEnd"})
_LONGEST_LIST: Final = 4000
"""Characters of a list of names, because a certificate may contain any number."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Represents one line of samples.log. Fields without a value in Envoy are None."""

    type: str | None = None
    time: str | None = None
    route: str | None = None
    status: int | None = None
    flags: str | None = None
    upstream_cluster: str | None = None
    upstream_host: str | None = None
    duration_ms: float | None = None
    tls_version: str | None = None
    cipher: str | None = None
    subject: str | None = None
    issuer: str | None = None
    not_before: float | None = None
    not_after: float | None = None
    """Unix time."""
    dns_names: str | None = None
    uris: str | None = None
    ip_addresses: str | None = None
    bytes: int | None = None
    authority: str | None = None
    method: str | None = None
    path: str | None = None
    grpc_status: str | None = None
    upgrade: bool | None = None
    connection: str | None = None

    @property
    def http(self) -> bool:
        return (self.type or "").startswith("Downstream")

    @property
    def ended(self) -> float:
        return ended(self)


def ended(line: Sample | AccessLogEntry) -> float:
    """Returns the time at which the request ended and its line was written."""
    return moment(line.time) + (line.duration_ms or 0.0) / 1000


def parse_sample(line: bytes) -> Sample | None:
    """Returns None for a line in another format, such as a truncated line."""
    try:
        return msgspec.json.decode(line, type=Sample, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def observed(outcome: ConnectionOutcome, *, upgrade: bool | None) -> tuple[ConnectionOutcome, ...]:
    """Returns the evidence of a request about its hop, and about upgrades for an upgrade request. A connection that the
    backend closes after an upgrade request proves nothing about other requests."""
    hop = outcome.hop.for_upgrades if upgrade else None
    if hop is None:
        return (outcome,)
    upgrade_outcome = replace(outcome, hop=hop)
    return (upgrade_outcome,) if outcome.failure and outcome.connected else (outcome, upgrade_outcome)


# --- failures --------------------------------------------------------------------------------------------------------


def failure(entry: AccessLogEntry) -> ConnectionOutcome | None:
    """Returns the connection failure in an entry of the log of failures, if any."""
    entry = without_earlier_attempts(entry)
    hop, flags = hop_of(entry.upstream_cluster), (entry.flags or "-").split(",")
    if hop is None or not entry.why:
        return None
    address = entry.upstream_host or ""
    outcome = ConnectionOutcome(hop, address, moment(entry.time), entry.why, config=config_of(entry.connection))
    if "UF" in flags and address:
        return replace(outcome, handshake=_in_handshake(entry))
    if "UH" in flags:
        return replace(outcome, address="")
    if not address:
        return None
    outcome = replace(outcome, at=ended(entry))
    if entry.status is not None and not _UNANSWERED.isdisjoint(flags):
        return _unanswered(entry, flags, outcome)
    return _refused_later(entry, flags, outcome) if entry.tls_version == TLS_1_3 else None


def _unanswered(entry: AccessLogEntry, flags: list[str], outcome: ConnectionOutcome) -> ConnectionOutcome:
    outcome = replace(outcome, connected=True, request=True)
    if "UC" not in flags:
        return outcome
    refused = refused_after_handshake(entry) if entry.tls_version == TLS_1_3 else ""
    return replace(outcome, failure=closed(entry), refused=refused)


def _refused_later(entry: AccessLogEntry, flags: list[str], outcome: ConnectionOutcome) -> ConnectionOutcome | None:
    """Returns the rejection of a client certificate, which with TLS 1.3 comes after the handshake."""
    if entry.status is not None or ("UR" not in flags and flags != ["-"]):
        return None
    return replace(outcome, failure=refused_after_handshake(entry), handshake=True, doubtful="UR" not in flags)


def _in_handshake(entry: AccessLogEntry) -> bool:
    """Returns whether the failure came after the TCP connection. A connect timeout covers both."""
    if entry.tls_failure and STALE_TLS_ERROR not in entry.tls_failure:
        return "TLS_error" in entry.tls_failure
    return bool(entry.policy) and "timeout" not in (entry.details or "")


# --- samples ---------------------------------------------------------------------------------------------------------


def success(sample: Sample) -> ConnectionOutcome | None:
    """Returns the connection that a sample proves."""
    hop = hop_of(sample.upstream_cluster)
    if hop is None or not sample.upstream_host or not _connected(sample):
        return None
    return ConnectionOutcome(
        hop,
        sample.upstream_host,
        moment(sample.time),
        certificate=_leaf(sample),
        tls_version=sample.tls_version or "",
        cipher=sample.cipher or "",
        config=config_of(sample.connection),
    )


def _connected(sample: Sample) -> bool:
    if sample.http:
        return sample.flags == "-" and bool(sample.status)
    if sample.flags not in ("-", "UF"):
        return False
    # With TLS 1.3 only a response proves that the backend has accepted the client's certificate.
    return bool(sample.bytes) or (sample.type == "TcpUpstreamConnected" and sample.tls_version != TLS_1_3)


def request(sample: Sample, weight: float) -> ServedRequest | None:
    """Returns the completed request of a sample, unless its client gave up before the response.

    A failed gRPC call has status 200, so its gRPC status decides.
    """
    if sample.type not in _ENDS:
        return None
    status = _status(sample)
    if not status:
        return None
    seconds = (sample.duration_ms or 0.0) / 1000
    hop = hop_of(sample.upstream_cluster)
    if hop and sample.upgrade:
        hop = hop.for_upgrades or hop
    return ServedRequest(route_of(sample.route), hop, status, seconds, weight)


def _status(sample: Sample) -> int | None:
    status = sample.status if sample.http else 200
    failed = sample.grpc_status in GRPC_FAILED or _failed(sample)
    return 503 if failed and status == 200 else status


def _failed(sample: Sample) -> bool:
    failure_flags = _FAILURES if sample.http else _STREAM_FAILURES
    return not failure_flags.isdisjoint((sample.flags or "").split(","))


def entry(sample: Sample, gateway: Key) -> AccessLogEntry | None:
    """Returns the sample as an access log entry, if the request has ended without a failure. Another log contains the
    failures."""
    if sample.type not in _ENDS or (sample.http and not sample.status):
        return None
    if (sample.status or 0) >= 500 or _failed(sample) or sample.grpc_status in GRPC_FAILED:
        return None
    return AccessLogEntry(
        time=sample.time,
        gateway=gateway.path,
        authority=_text(sample.authority),
        method=_text(sample.method),
        path=_text(sample.path),
        status=sample.status if sample.http else 0,
        grpc_status=sample.grpc_status,
        route=sample.route,
        upstream_cluster=sample.upstream_cluster,
        upstream_host=sample.upstream_host,
        duration_ms=sample.duration_ms,
        upgrade=sample.upgrade,
    )


def _text(text: str | None) -> str | None:
    return None if text is None else shown(text)


def _leaf(sample: Sample) -> LeafCertificate | None:
    if not sample.not_after:
        return None
    names = (name for names in (sample.dns_names, sample.uris, sample.ip_addresses) for name in _listed(names))
    return LeafCertificate(sample.subject or "", sample.issuer or "", tuple(names), sample.not_before or 0.0, sample.not_after)


def _listed(names: str | None) -> list[str]:
    return [name for name in (names or "")[:_LONGEST_LIST].split(",") if name]


@lru_cache(maxsize=4096)
def hop_of(cluster: str | None) -> Hop | None:
    return Hop.parse(cluster or "")


@lru_cache(maxsize=4096)
def config_of(connection: str | None) -> str:
    """Returns the configuration in the field `connection`, or an empty text."""
    parsed = Connection.parse(connection or "")
    return parsed.config if parsed else ""


@lru_cache(maxsize=4096)
def route_of(name: str | None) -> Key | None:
    return Key.parse(name or "")


def moment(text: str | None) -> float:
    """Returns Unix time; 0 if the text is missing or invalid."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except (ValueError, OverflowError):
        return 0.0
