"""The JSON access logs: one for failures and one for samples (docs/measurements.md#access-log).

Each logs a share of the requests, set in Envoy's runtime: all while there are few. `proxy/observer.py` sets the share, so that
neither clients nor backends decide the volume."""

from __future__ import annotations

from typing import Final

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.data.accesslog.v3 import accesslog_pb2 as accesslog_data_pb2
from envoy.extensions.access_loggers.file.v3 import file_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.struct_pb2 import Struct

from lasthop.engine.outputs.envoy.clusters import METADATA
from lasthop.engine.outputs.envoy.encode import packed
from lasthop.engine.plan.profile import AccessLog

PATH: Final = "access.log"
"""Relative to the proxy's working directory, its run directory."""

SAMPLES: Final = "samples.log"
"""Successful requests too: certificates of backends, and latencies."""
FAILURES_SHARE: Final = "lasthop.failures"
SAMPLES_SHARE: Final = "lasthop.samples"
"""Runtime keys for shares in millionths."""

FAILURE_STATUS: Final = 500

UPGRADE_STATE: Final = "lasthop.upgrade"
"""Marks upgrade requests in their filter state, which clients cannot write, unlike headers."""

FIELDS: Final = {
    "time": "%START_TIME%",
    "authority": "%REQ(:AUTHORITY):256%",
    "method": "%REQ(:METHOD):32%",
    "path": "%REQ(:PATH):512%",
    "status": "%RESPONSE_CODE%",
    "grpc_status": "%GRPC_STATUS%",
    "flags": "%RESPONSE_FLAGS%",
    "route": "%ROUTE_NAME%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "upstream_cluster": "%UPSTREAM_CLUSTER_RAW%",
    "connection": "%UPSTREAM_CLUSTER%",
    "upstream_host": "%UPSTREAM_HOST%",
    "tls_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
    "tls_version": "%UPSTREAM_TLS_VERSION%",
    "policy": f"%METADATA(CLUSTER:{METADATA}:policy)%",
    "wants": f"%METADATA(CLUSTER:{METADATA}:wants)%",
    "shows": f"%METADATA(CLUSTER:{METADATA}:shows)%",
    "duration_ms": "%DURATION%",
    "request_id": "%REQ(X-REQUEST-ID):64%",
    "upgrade": f"%FILTER_STATE({UPGRADE_STATE}:PLAIN)%",
}
"""The log fields. Values from clients are truncated, because a header may have 60 KB."""


GRPC_FAILURES: Final = (
    accesslog_pb2.GrpcStatusFilter.UNKNOWN,
    accesslog_pb2.GrpcStatusFilter.DEADLINE_EXCEEDED,
    accesslog_pb2.GrpcStatusFilter.INTERNAL,
    accesslog_pb2.GrpcStatusFilter.UNAVAILABLE,
    accesslog_pb2.GrpcStatusFilter.DATA_LOSS,
)
"""Failures that are not the caller's fault."""

GRPC_CALL: Final = accesslog_pb2.AccessLogFilter(
    header_filter=accesslog_pb2.HeaderFilter(
        header=rc.HeaderMatcher(name="content-type", string_match=string_pb2.StringMatcher(prefix="application/grpc"))
    )
)


def all_of(*filters: accesslog_pb2.AccessLogFilter) -> accesslog_pb2.AccessLogFilter:
    return accesslog_pb2.AccessLogFilter(and_filter=accesslog_pb2.AndFilter(filters=filters))


def flagged(*flags: str) -> accesslog_pb2.AccessLogFilter:
    """Matches responses with one of Envoy's response flags."""
    return accesslog_pb2.AccessLogFilter(response_flag_filter=accesslog_pb2.ResponseFlagFilter(flags=flags))


def status_is(op: accesslog_pb2.ComparisonFilter.Op, status: int) -> accesslog_pb2.AccessLogFilter:
    comparison = accesslog_pb2.ComparisonFilter(
        op=op, value=base_pb2.RuntimeUInt32(default_value=status, runtime_key=f"lasthop.status.{status}")
    )
    return accesslog_pb2.AccessLogFilter(status_code_filter=accesslog_pb2.StatusCodeFilter(comparison=comparison))


STREAM_FIELDS: Final = {
    **{name: FIELDS[name] for name in ("time", "flags", "upstream_cluster", "upstream_host", "tls_failure", "tls_version")},
    **{name: FIELDS[name] for name in ("connection", "policy", "wants", "shows")},
    "details": "%CONNECTION_TERMINATION_DETAILS%",
    "authority": "%REQUESTED_SERVER_NAME%",
    "duration_ms": FIELDS["duration_ms"],
}

CONNECTION: Final = "0"
"""In place of a status: marks a forwarded connection."""
STREAM_FAILURES: Final = ("URX", "NC", "UH", "UO")
"""Flags of failed connections. UF also marks connections that succeeded at the second try; URX marks those whose last try
failed."""


def stream_log(gateway: str, route: str, mode: AccessLog) -> accesslog_pb2.AccessLog:
    """Returns the log of connections that could not be forwarded. They have no status."""
    fields = {"gateway": gateway, "route": route, **STREAM_FIELDS, **_quiet(mode)}
    if mode is AccessLog.ALL:
        return _log(PATH, {**fields, "status": CONNECTION}, of_type(accesslog_data_pb2.TcpConnectionEnd))
    return _log(PATH, fields, all_of(flagged(*STREAM_FAILURES), share_of(FAILURES_SHARE)))


ENDED_AT_ONCE: Final = "response.size == 0 && upstream.tls_version != '' && request.duration < duration('1s')"
"""Matches connections that ended within a second, whose backend finished the handshake and sent no data."""


def _quiet(mode: AccessLog) -> dict[str, str]:
    """Marks entries that are observed but not written. A running proxy can be switched to this mode."""
    return {"quiet": "true"} if mode is AccessLog.OFF else {}


def ended_log(gateway: str, mode: AccessLog) -> accesslog_pb2.AccessLog:
    """Logs connections that ended right after the handshake with the backend. With TLS 1.3, a backend refuses a missing or
    invalid client certificate this way, and Envoy has no flag for it. One log serves all chains of a listener, because each
    costs Envoy a millisecond."""
    expression = packed(cel_pb2.ExpressionFilter(expression=ENDED_AT_ONCE))
    extension = accesslog_pb2.ExtensionFilter(name="envoy.access_loggers.extension_filters.cel", typed_config=expression)
    only = all_of(share_of(FAILURES_SHARE), accesslog_pb2.AccessLogFilter(extension_filter=extension))
    return _log(PATH, {"gateway": gateway, **STREAM_FIELDS, **_quiet(mode)}, only)


def access_log(gateway: str, mode: AccessLog) -> accesslog_pb2.AccessLog:
    if mode is AccessLog.ALL:
        return _log(PATH, {"gateway": gateway, **FIELDS}, of_type(accesslog_data_pb2.DownstreamEnd))
    # A failed gRPC call has the HTTP status 200.
    calls = accesslog_pb2.AccessLogFilter(grpc_status_filter=accesslog_pb2.GrpcStatusFilter(statuses=GRPC_FAILURES))
    either = accesslog_pb2.OrFilter(
        filters=[status_is(accesslog_pb2.ComparisonFilter.GE, FAILURE_STATUS), all_of(GRPC_CALL, calls)]
    )
    only = all_of(accesslog_pb2.AccessLogFilter(or_filter=either), share_of(FAILURES_SHARE))
    return _log(PATH, {"gateway": gateway, **FIELDS, **_quiet(mode)}, only)


SAMPLE_FIELDS: Final = {
    "type": "%ACCESS_LOG_TYPE%",
    **{name: FIELDS[name] for name in ("time", "status", "flags", "upstream_cluster", "upstream_host", "duration_ms")},
    "connection": FIELDS["connection"],
    "tls_version": "%UPSTREAM_TLS_VERSION%",
    "cipher": "%UPSTREAM_TLS_CIPHER%",
    "subject": "%UPSTREAM_PEER_SUBJECT%",
    "issuer": "%UPSTREAM_PEER_ISSUER%",
    # Unix time costs Envoy a fraction of a formatted date.
    "not_before": "%UPSTREAM_PEER_CERT_V_START(%s)%",
    "not_after": "%UPSTREAM_PEER_CERT_V_END(%s)%",
    "dns_names": "%UPSTREAM_PEER_DNS_SAN%",
    "uris": "%UPSTREAM_PEER_URI_SAN%",
    "ip_addresses": "%UPSTREAM_PEER_IP_SAN%",
    "bytes": "%BYTES_SENT%",
}


def sample_log() -> accesslog_pb2.AccessLog:
    """Returns the log of all responses, failures included, for counts and latencies."""
    request_fields = {name: FIELDS[name] for name in ("route", "authority", "method", "path", "grpc_status", "upgrade")}
    return _log(SAMPLES, {**SAMPLE_FIELDS, **request_fields}, share_of(SAMPLES_SHARE))


def stream_sample_log(route: str) -> accesslog_pb2.AccessLog:
    return _log(SAMPLES, {**SAMPLE_FIELDS, "route": route, "authority": STREAM_FIELDS["authority"]}, share_of(SAMPLES_SHARE))


def of_type(type: accesslog_data_pb2.AccessLogType) -> accesslog_pb2.AccessLogFilter:
    """Selects the line at the end of each request or connection. Samples have more lines."""
    return accesslog_pb2.AccessLogFilter(log_type_filter=accesslog_pb2.LogTypeFilter(types=[type]))


def share_of(key: str) -> accesslog_pb2.AccessLogFilter:
    """Samples a share that a runtime key sets."""
    everything = percent_pb2.FractionalPercent(numerator=1_000_000, denominator=percent_pb2.FractionalPercent.MILLION)
    # Requests have no ids as a source of randomness.
    filter = accesslog_pb2.RuntimeFilter(runtime_key=key, percent_sampled=everything, use_independent_randomness=True)
    return accesslog_pb2.AccessLogFilter(runtime_filter=filter)


def _log(path: str, fields: dict[str, str], only: accesslog_pb2.AccessLogFilter) -> accesslog_pb2.AccessLog:
    format = Struct()
    format.update(fields)
    log = file_pb2.FileAccessLog(
        path=path, log_format=substitution_format_string_pb2.SubstitutionFormatString(json_format=format)
    )
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.file", filter=only, typed_config=packed(log))
