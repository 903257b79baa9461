"""Summarizes a cluster: its trust, its endpoints, and unusual protocols."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from envoy.config.cluster.v3 import cluster_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.unknown_fields import UnknownFieldSet

from lasthop.base.pki import parse
from lasthop.engine.outputs.envoy.resource import Resource
from lasthop.engine.outputs.envoy.retries import BUDGET_INTERVAL
from tests.snapshot import tls_context

UNLIMITED = 1_000_000
LIMITS = ("max_connections", "max_pending_requests", "max_requests")
BUDGET = "100 %, at least 100"
"""Retries at a time: percent of the requests that are under way, and at least."""
EJECTED = 30
"""Seconds, of everything but datagrams."""


def cluster_lines(resource: Resource, endpoints: Mapping[str, Any]) -> dict[str, Any]:
    cluster = cluster_pb2.Cluster.FromString(resource.body)
    assignment = endpoints.get(cluster.eds_cluster_config.service_name, cluster.load_assignment)
    until = {"until": datetime.fromtimestamp(resource.expires, UTC).isoformat()} if resource.expires else {}
    limits = {**_limits(cluster), **_ejection(cluster)}
    return {**_tls(cluster), **_speaks(cluster), **limits, **until, "endpoints": _endpoints(assignment)}


def _speaks(cluster: Any) -> dict[str, str]:
    """Returns the HTTP versions if they differ from those in the hop's name: `auto` is both by ALPN over TLS, and HTTP/1.1
    without TLS."""
    protocol = cluster.name.rpartition("/")[2]
    usual = {"auto": "h2 or http/1.1" if tls_context(cluster) else "http/1.1", "h2": "h2", "h1-upgrade": "http/1.1"}
    spoken = _http(cluster)
    return {} if spoken == usual.get(protocol, "") else {"speaks": spoken or "no HTTP"}


def _http(cluster: Any) -> str:
    options = http_protocol_options_pb2.HttpProtocolOptions()
    (packed,) = cluster.typed_extension_protocol_options.values() or [None]
    if packed is None:
        return ""
    assert packed.Unpack(options)
    if options.HasField("auto_config"):
        context = tls_context(cluster)
        named = list(context.common_tls_context.alpn_protocols) if context else []
        return f"{', '.join(named)} (upgrades: http/1.1)" if named else "h2 or http/1.1"
    return "h2" if options.explicit_http_config.HasField("http2_protocol_options") else "http/1.1"


def _limits(cluster: Any) -> dict[str, Any]:
    """Circuit breakers, where there are others than usual."""
    (thresholds,) = cluster.circuit_breakers.thresholds
    limits = {name: getattr(thresholds, name).value for name in LIMITS if getattr(thresholds, name).value != UNLIMITED}
    return {**({"limits": limits} if limits else {}), **_retries(thresholds)}


def _retries(thresholds: Any) -> dict[str, str]:
    """The retry budget, where it is another than usual."""
    words = retry_budget(thresholds)
    return {} if words == BUDGET else {"retries": words}


def retry_budget(thresholds: Any) -> str:
    budget = thresholds.retry_budget
    # The stand-in of xds-protos for a field that it does not know: see BUDGET_INTERVAL.
    unknown = UnknownFieldSet(budget)
    fields = [unknown[number] for number in range(len(unknown))]
    intervals = [Duration.FromString(field.data) for field in fields if field.field_number == BUDGET_INTERVAL]
    over = "".join(f" of {interval.ToTimedelta().total_seconds():g} s" for interval in intervals)
    return f"{budget.budget_percent.value:g} %{over}, at least {budget.min_retry_concurrency.value}"


def _ejection(cluster: Any) -> dict[str, str]:
    """The ejection time of failing endpoints, if it differs from the default."""
    length = cluster.outlier_detection.base_ejection_time.seconds
    usual = 0 if cluster.name.endswith("/udp") else EJECTED
    return {} if length == usual else {"ejection": f"{length} s" if length else "never"}


def _endpoints(assignment: Any) -> list[str]:
    addresses = [e.endpoint.address.socket_address for group in assignment.endpoints for e in group.lb_endpoints]
    return [f"{a.address}:{a.port_value}" for a in addresses]


def _tls(cluster: Any) -> dict[str, Any]:
    context = tls_context(cluster)
    if context is None:
        return {"plaintext": True}
    common = context.common_tls_context
    if not common.HasField("validation_context"):
        return {"tls": f"SNI {context.sni}", "trusts": "anybody"}
    validation = common.validation_context
    ca = validation.trusted_ca
    certificates = parse.certificates(ca.inline_bytes) if ca.inline_bytes else ()
    assert isinstance(certificates, tuple)
    names = [m.matcher.exact or m.matcher.safe_regex.regex for m in validation.match_typed_subject_alt_names]
    shown: dict[str, Any] = {
        "tls": f"SNI {context.sni}",
        "trusts": [c.common_name for c in certificates] or ca.filename or "only pins",
        "accepts": names or "any name",
    }
    if validation.verify_certificate_spki or validation.verify_certificate_hash:
        shown["pins"] = [*validation.verify_certificate_spki, *validation.verify_certificate_hash]
    if validation.HasField("crl"):
        shown["revocation"] = "of the leaf" if validation.only_verify_leaf_cert_crl else "of the chain"
    if validation.allow_expired_certificate:
        shown["dates"] = "not checked"
    if common.tls_certificate_sds_secret_configs:
        shown["presents"] = common.tls_certificate_sds_secret_configs[0].name
    params = common.tls_params
    if (params.tls_minimum_protocol_version, params.tls_maximum_protocol_version) != (3, 4):
        shown["versions"] = f"TLS 1.{params.tls_minimum_protocol_version - 1} to 1.{params.tls_maximum_protocol_version - 1}"
    versions = ("tls_minimum_protocol_version", "tls_maximum_protocol_version")
    shown |= {field.name: list(value) for field, value in params.ListFields() if field.name not in versions}
    return shown
