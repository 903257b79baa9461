"""The evidence about a connection to a backend in lines of Envoy's logs."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.proxy.admin import endpoint_counts, hop_counts
from lasthop.edge.proxy.entry import AccessLogEntry, parse
from lasthop.edge.proxy.evidence import Sample, failure, moment, observed, parse_sample, request, success
from lasthop.edge.proxy.failures import explained
from lasthop.engine.outputs.envoy.statistics import HOP_STATS
from lasthop.engine.plan.upstream import Connection, Hop, Protocol

HOP = Hop(Key("Gateway", "shop", "web.v1"), Key("Service", "shop", "api"), 443, Protocol.AUTO)
CONNECTION = Connection(HOP, "2f1c")
HOST = "127.0.0.1:8443"
TIME = "2026-11-17T03:00:03.500Z"
BEGAN = moment(TIME)


def failed(flags: str = "UF", **fields: Any) -> AccessLogEntry:
    known = {"time": TIME, "status": 503, "upstream_cluster": HOP.name, "upstream_host": HOST, "policy": "shop/api"}
    entry = AccessLogEntry(flags=flags, **{**known, **fields})
    return explained(entry)


def test_a_failed_handshake_is_a_failure_at_its_endpoint() -> None:
    evidence = failure(
        failed(tls_failure="TLS_error:|1:CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_SAN_matcher,_certificate_SANs_are_[a]")
    )
    assert evidence and (evidence.hop, evidence.address, evidence.at, evidence.handshake) == (HOP, HOST, BEGAN, True)
    assert evidence.failure == "certificate is for a, policy shop/api wants another name"


@pytest.mark.parametrize(
    ("entry", "handshake"),
    [
        (failed(tls_failure="delayed_connect_error:_Connection_refused"), False),
        (failed(details="upstream_reset_before_response_started{connection_timeout}"), False),
        (failed(details="upstream_reset_before_response_started{remote_connection_failure}"), True),
        (failed(details="upstream_reset_before_response_started{remote_connection_failure}", policy=None), False),
    ],
)
def test_connection_failures_differ_from_handshake_failures(entry: AccessLogEntry, handshake: bool) -> None:
    evidence = failure(entry)
    assert evidence and evidence.handshake is handshake


def test_no_endpoint_has_no_address() -> None:
    evidence = failure(failed("UH", upstream_host=None))
    assert evidence and evidence.address == "" and not evidence.handshake


def test_a_request_without_an_answer_is_a_failed_handshake_only_if_the_backend_refuses_the_client() -> None:
    evidence = failure(failed("UC", tls_version="TLSv1.3", duration_ms=2000))
    assert evidence and evidence.request and not evidence.handshake and evidence.at == BEGAN + 2
    assert "client certificate" not in evidence.failure and "wants a client certificate" in evidence.refused
    assert "lasthop probe" not in f"{evidence.failure}{evidence.refused}"


@pytest.mark.parametrize("flags", ["UC", "UR", "UPE"])
@pytest.mark.parametrize("version", [None, "TLSv1.2", "TLSv1.3"])
def test_the_proxys_own_error_for_a_connected_backend_counts_as_a_failed_request(flags: str, version: str | None) -> None:
    evidence = failure(failed(flags, tls_version=version))
    assert evidence and evidence.request and evidence.connected and not evidence.handshake
    assert bool(evidence.refused) == (flags == "UC" and version == "TLSv1.3"), "only that may be a refused client"


def test_a_stream_that_ends_after_a_tls_1_3_handshake_may_be_a_failed_handshake() -> None:
    stream = failure(failed("-", status=None, tls_version="TLSv1.3"))
    assert stream and stream.doubtful
    reset = failure(failed("UR", status=None, tls_version="TLSv1.3"))
    assert reset and reset.handshake and not reset.doubtful and "wants a client certificate" in reset.failure


@pytest.mark.parametrize(
    "entry",
    [
        failed("UT"),
        failed("UO"),
        failed("NC", upstream_host=None),
        failed("-"),
        failed("DC"),
        failed("UF", upstream_cluster="refused"),
        failed("UF", upstream_cluster=None),
        failed("-", status=None),
    ],
)
def test_only_failures_to_connect_count(entry: AccessLogEntry) -> None:
    assert failure(entry) is None


def sample(**fields: Any) -> Sample:
    known: dict[str, Any] = {
        "type": "DownstreamEnd",
        "time": TIME,
        "route": "HTTPRoute shop/web",
        "status": 200,
        "flags": "-",
        "upstream_cluster": HOP.name,
        "upstream_host": HOST,
        "duration_ms": 250,
        "tls_version": "TLSv1.3",
        "subject": "CN=x",
        "issuer": "CN=ca",
        "not_before": "1767225600",
        "not_after": "1798761600",
        "dns_names": "a.example,b.example",
        "uris": "spiffe://x/y",
    }
    parsed = parse_sample(msgspec.json.encode({**known, **fields}))
    assert parsed
    return parsed


def test_a_sample_shows_the_certificate() -> None:
    evidence = success(sample())
    assert evidence and evidence.certificate and evidence.at == BEGAN and not evidence.failure
    assert evidence.certificate.names == ("a.example", "b.example", "spiffe://x/y")
    assert evidence.certificate.not_after == moment("2027-01-01T00:00:00Z")
    assert evidence.certificate.not_before == moment("2026-01-01T00:00:00Z")


def test_observations_of_upgrades_and_requests_are_separate() -> None:
    made, unmade = success(sample()), failure(failed("UF"))
    ended = failure(failed("UC", tls_version="TLSv1.3"))
    assert made and unmade and ended
    assert [observation.hop.protocol for observation in observed(made, upgrade=None)] == ["auto"]
    assert [observation.hop.protocol for observation in observed(made, upgrade=True)] == ["auto", "h1-upgrade"]
    assert [observation.hop.protocol for observation in observed(unmade, upgrade=True)] == ["auto", "h1-upgrade"]
    assert [observation.hop.protocol for observation in observed(ended, upgrade=True)] == ["h1-upgrade"]
    evidence = request(sample(upgrade="true"), 1.0)
    assert evidence and evidence.hop and evidence.hop.protocol == "h1-upgrade"


def test_a_sample_is_a_request_that_stands_for_many() -> None:
    evidence = request(sample(status=404), 12.5)
    assert evidence and (evidence.route, evidence.hop) == (Key("HTTPRoute", "shop", "web"), HOP)
    assert (evidence.status, evidence.seconds, evidence.weight) == (404, 0.25, 12.5)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"grpc_status": "Unavailable"}, 503),
        ({"grpc_status": "Unavailable", "flags": "UF"}, 503),
        ({"grpc_status": "NotFound"}, 200),
        ({"grpc_status": "OK"}, 200),
        ({"status": 500, "grpc_status": "Internal"}, 500),
    ],
)
def test_a_grpc_call_that_fails_is_no_success_although_http_says_200(fields: dict[str, Any], status: int) -> None:
    evidence = request(sample(**fields), 1.0)
    assert evidence and evidence.status == status


def test_an_error_that_a_listener_has_left_behind_says_nothing_of_the_backend() -> None:
    left = "TLS_error:|268435600:SSL_routines:OPENSSL_internal:CONNECTION_REJECTED:TLS_error_end"
    details = f"upstream_reset_before_response_started{{connection_timeout|{left}}}"
    entry = failed(tls_failure=left, details=details)
    evidence = failure(entry)
    assert entry.why and entry.why.startswith("connect timeout (TCP or TLS handshake)")
    assert evidence and not evidence.handshake


def test_a_backends_own_error_is_a_connection_that_was_made() -> None:
    assert success(sample(status=503)) is not None


@pytest.mark.parametrize(
    "fields",
    [{"flags": "UF"}, {"flags": "UC"}, {"flags": "DC", "status": 0}, {"upstream_host": None}, {"upstream_cluster": None}],
)
def test_no_connection_follows_from_these(fields: dict[str, Any]) -> None:
    assert success(sample(**fields)) is None


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({"type": "TcpUpstreamConnected"}, False),
        ({"type": "TcpUpstreamConnected", "tls_version": "TLSv1.2"}, True),
        ({"type": "TcpUpstreamConnected", "tls_version": None}, True),
        ({"type": "TcpPeriodic", "bytes": 10}, True),
        ({"type": "TcpConnectionEnd", "bytes": 0}, False),
        ({"type": "TcpConnectionEnd", "bytes": 1}, True),
    ],
)
def test_only_a_response_proves_a_tls_1_3_stream(fields: dict[str, Any], made: bool) -> None:
    assert (success(sample(status=0, **fields)) is not None) is made


def test_a_stream_counts_once_when_it_ends() -> None:
    assert request(sample(status=0, type="TcpUpstreamConnected"), 1.0) is None
    assert [request(sample(status=0, type="TcpConnectionEnd", flags=flags), 1.0) for flags in ("-", "UF,URX")] == [
        msgspec.structs.replace(r, status=status) for status in (200, 503) if (r := request(sample(), 1.0))
    ]


def test_a_request_that_its_client_gave_up_is_not_counted() -> None:
    assert request(sample(status=0, flags="DC"), 1.0) is None


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff", b'{"status": {}}', b'{"time": 1'])
def test_half_a_line_is_ignored(line: bytes) -> None:
    assert parse_sample(line) is None


def test_dates_that_cannot_be_read_are_none() -> None:
    assert [moment(text) for text in (None, "", "yesterday", "0000-00-00T00:00:00Z")] == [0.0] * 4


def test_counters_of_hops_are_read_by_name() -> None:
    stats = {
        f"cluster.{CONNECTION.name}.ssl.handshake": 3,
        f"cluster.{CONNECTION.name}.ssl.fail_verify_san": 2,
        f"cluster.{CONNECTION.name}.ssl.fail_verify_error": 0,
        f"cluster.{CONNECTION.name}.upstream_cx_total": 5,
        f"cluster.{CONNECTION.name}.upstream_cx_connect_fail": 2,
        f"cluster.{CONNECTION.name}.upstream_cx_connect_timeout": 1,
        f"cluster.{CONNECTION.name}.upstream_rq_active": 1,
        f"cluster.{CONNECTION.name}.upstream_rq_total": 8,
        f"cluster.{CONNECTION.name}.outlier_detection.ejections_active": 1,
        "cluster.xds.upstream_cx_total": 9,
    }
    body = msgspec.json.encode({"stats": [{"name": name, "value": value} for name, value in stats.items()]})
    ((hop, counts),) = hop_counts(body).items()
    assert hop == CONNECTION and counts.tls_failures == {"fail_verify_san": 2}
    assert (counts.connections, counts.connect_failures, counts.handshakes) == (5, 2, 3)
    assert (counts.active, counts.requests, counts.connect_timeouts, counts.ejected) == (1, 8, 1, 1)
    assert all(re.search(HOP_STATS, name) for name in stats if HOP.name in name)


def test_counters_of_endpoints_are_read_by_address() -> None:
    def host(address: str, **stats: int) -> dict[str, Any]:
        where = {"socket_address": {"address": address, "port_value": 443}}
        return {"address": where, "stats": [{"name": name, "value": str(value)} for name, value in stats.items()]}

    ejected = {**host("10.0.0.2"), "health_status": {"failed_outlier_check": True, "eds_health_status": "HEALTHY"}}
    hosts = [host("10.0.0.1", cx_total=3, cx_connect_fail=1, rq_success=7), host("fd00::1"), {}, ejected]
    body = msgspec.json.encode(
        {
            "cluster_statuses": [
                {"name": HOP.name, "observability_name": CONNECTION.name, "host_statuses": hosts},
                {"name": "xds"},
            ]
        }
    )
    ((hop, by_address),) = endpoint_counts(body).items()
    assert hop == CONNECTION and by_address.keys() == {"10.0.0.1:443", "10.0.0.2:443", "[fd00::1]:443", ":0"}
    assert [address for address, counts in by_address.items() if counts.ejected] == ["10.0.0.2:443"]
    one = by_address["10.0.0.1:443"]
    assert (one.connections, one.connect_failures, one.answers) == (3, 1, 7)


@pytest.mark.parametrize("odd", ["", "odd].example,_"])
def test_a_truncated_text_gives_no_number_of_names(odd: str) -> None:
    names = odd + ",_".join(f"n{n}.example" for n in range(3000))
    line = msgspec.json.encode(
        {"status": 503, "flags": "UF", "tls_failure": f"verify_cert_failed:_SAN_matcher,_certificate_SANs_are_[{names}]"}
    )
    entry = parse(line)
    assert entry is not None
    reason = explained(entry).why
    assert reason is not None and reason.startswith("certificate is for ") and " and more, the policy wants" in reason


@pytest.mark.parametrize(
    ("protocol", "upgrade", "offered"),
    [
        (Protocol.AUTO, None, "HTTP/2 or HTTP/1.1"),
        (Protocol.AUTO, True, "HTTP/1.1 alone, which a WebSocket needs"),
        (Protocol.H2, None, "HTTP/2 alone, which gRPC needs"),
    ],
)
def test_a_backend_without_a_common_protocol_is_reported_with_the_offered_protocols(
    protocol: Protocol, upgrade: bool | None, offered: str
) -> None:
    alert = "TLS_error:|1:SSL_routines:OPENSSL_internal:TLSV1_ALERT_NO_APPLICATION_PROTOCOL:TLS_error_end"
    entry = failed(tls_failure=alert, upstream_cluster=HOP._replace(protocol=protocol).name, upgrade=upgrade)
    assert entry.why == f"no common protocol with the backend (ALPN: {offered})"


def test_an_upgrade_that_is_hung_up_on_names_the_protocol_first() -> None:
    reason = failed(
        "UC", tls_version="TLSv1.3", upgrade=True, details="upstream_reset_before_response_started{connection_termination}"
    ).why
    assert (
        reason is not None
        and "an HTTP/2-only backend closes WebSocket connections this way; with TLS 1.3 also a backend that wants" in reason
    )


STREAM = HOP._replace(protocol=Protocol.TCP).name


@pytest.mark.parametrize("status", [None, 0])
def test_a_connection_that_was_made_at_the_second_try_has_not_failed(status: int | None) -> None:
    """Envoy keeps the flag and the error of the first try, beside the endpoint of the second."""
    error = "TLS_error:|1:CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_SAN_matcher,_certificate_SANs_are_[a]"
    entry = failed("UF", status=status, upstream_cluster=STREAM, tls_failure=error)
    assert failure(entry) is None
    made = {"upstream_cluster": STREAM, "status": 0, "type": "TcpConnectionEnd", "flags": "UF", "bytes": 1}
    assert success(sample(**made)) is not None
    evidence = request(sample(**made), 1.0)
    assert evidence and evidence.status == 200


def test_a_connection_whose_last_try_has_failed_has_failed() -> None:
    entry = failed("UF,URX", status=None, upstream_cluster=STREAM, tls_failure="delayed_connect_error:_Connection_refused")
    evidence = failure(entry)
    assert evidence and evidence.failure.startswith("connection refused")


CHECKED = "TLS_error:|268435581:SSL_routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_X509_verify_cert:"
FOR_LISTS = "certificate_revocation_check_against_provided_CRLs_failed"


@pytest.mark.parametrize(
    ("depth", "detail", "why"),
    [
        (0, "certificate_revoked", "certificate revoked"),
        (1, "certificate_revoked", "certificate of the CA that signed the backend's is revoked"),
        (
            0,
            "unable_to_get_certificate_CRL",
            "the issuer of the certificate has no revocation list, and policy shop/api has lists of other CAs",
        ),
        (0, "CRL_has_expired", "certificate was not accepted: certificate revocation check against provided crls failed"),
    ],
)
def test_revoked_and_missing_lists_have_different_reasons(depth: int, detail: str, why: str) -> None:
    """As Envoy logged it in tests/proxy/test_revocation.py."""
    failure = f"{CHECKED}_certificate_verification_error_at_depth_{depth}:_{FOR_LISTS}:_{detail}:TLS_error_end"
    assert explained(AccessLogEntry(status=503, flags="UF", tls_failure=failure, policy="shop/api")).why == why
