"""Names that another process returns to us: writer and parser are inverse to each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.base.pki.parse import bare_names
from lasthop.edge.proxy.entry import AccessLogEntry
from lasthop.edge.proxy.failures import explained
from lasthop.engine.outputs.envoy.resource import cluster_of, endpoints_name
from lasthop.engine.plan.cluster_metadata import PLAINTEXT, metadata, names, source
from lasthop.engine.plan.observation import failing, failure_words
from lasthop.engine.plan.tls import BackendTLS, San, SanType
from lasthop.engine.plan.upstream import Connection, Hop, Protocol

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
"""DNS subdomains, as objects have them: with dots, digits and hyphens."""
KEYS = st.builds(Key, st.sampled_from(["HTTPRoute", "Service", "XBackend", "BackendTLSPolicy"]), LABELS, NAMES)
CLUSTER_SCOPED = st.builds(Key, st.just("GatewayClass"), st.just(""), NAMES)
GATEWAYS = st.builds(Key, st.just("Gateway"), LABELS, NAMES)
BACKENDS = st.builds(Key, st.sampled_from(["Service", "XBackend"]), LABELS, NAMES)
HOPS = st.builds(Hop, GATEWAYS, BACKENDS, st.integers(1, 65535), st.sampled_from(Protocol))
CONFIGS = st.just(PLAINTEXT) | st.from_regex("[0-9a-f]{16}", fullmatch=True)
URIS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20)
SANS = st.builds(San, st.just(SanType.DNS), NAMES) | st.builds(San, st.just(SanType.URI), URIS)


@given(KEYS | CLUSTER_SCOPED)
def test_a_key_is_read_as_it_was_written(key: Key) -> None:
    assert Key.parse(str(key)) == key and Key.read(key.kind, key.path) == key


@given(st.sampled_from(["", "-", "refused", "HTTPRoute", "HTTPRoute ", " shop/web"]))
def test_invalid_keys_are_none(text: str) -> None:
    assert Key.parse(text) is None


@given(HOPS)
def test_a_hop_is_read_from_the_name_of_its_cluster(hop: Hop) -> None:
    assert Hop.parse(hop.name) == hop


@given(HOPS, CONFIGS, st.sampled_from(["ssl.handshake", "ssl.fail_verify_san", "upstream_cx_total"]))
def test_a_connection_is_read_from_the_stats_of_its_cluster(hop: Hop, config: str, stat: str) -> None:
    connection = Connection(hop, config)
    assert Connection.parse(connection.name) == connection
    assert Connection.parse_stat(f"cluster.{connection.name}.{stat}") == (connection, stat)


@given(HOPS)
def test_a_hop_whose_configuration_is_not_known_is_no_connection(hop: Hop) -> None:
    assert Connection.parse(hop.name) is None and Connection.parse(f"{hop.name}@") is None
    assert Connection.parse_stat(f"cluster.{hop.name}.ssl.handshake") is None


def test_stats_of_other_clusters_are_not_connections() -> None:
    assert Connection.parse_stat("cluster.xds.upstream_cx_total") is None


@given(HOPS, st.from_regex("[0-9a-f]{24}", fullmatch=True))
def test_the_name_of_endpoints_contains_their_cluster(hop: Hop, version: str) -> None:
    assert cluster_of(endpoints_name(hop.name, version)) == hop.name


@given(KEYS, st.lists(SANS, max_size=3))
def test_the_access_log_knows_policy_and_names_of_a_cluster(key: Key, sans: list[San]) -> None:
    written = metadata(BackendTLS(key, "", None, tuple(sans)))
    assert source(written["policy"]) == key
    assert names(written["wants"]) == [san.value for san in sans]


@given(BACKENDS, st.integers(1, 65535), st.lists(st.sampled_from(["10.0.0.1:8443", "[2001:db8::1]:8443"])), st.text())
def test_why_a_backend_fails_is_read_without_where(backend: Key, port: int, endpoints: list[str], words: str) -> None:
    assert failure_words(failing(f"{backend}:{port} ({', '.join(endpoints)}), from web-0, web-1", words)) == words


@given(KEYS)
def test_the_advice_is_a_field_of_its_own(key: Key) -> None:
    policy = metadata(BackendTLS(key, "", None, ()))["policy"]
    entry = explained(AccessLogEntry(flags="UC", status=503, policy=policy))
    assert entry.advice is not None and key.path in entry.advice
    assert entry.why is not None and key.path not in entry.why


def test_names_of_a_certificate_are_read_without_their_type() -> None:
    shown = ("DNS a.example", "URI spiffe://x/y z", "IP 10.0.0.1", "OtherName")
    assert bare_names(shown) == ("a.example", "spiffe://x/y z", "10.0.0.1")
    assert bare_names(shown, "DNS", "URI") == ("a.example", "spiffe://x/y z")
