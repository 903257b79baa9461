"""XTelemetryPolicy: spans of requests reach an OTLP collector as the policy requires, over a verified hop."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lasthop.engine.outputs.envoy.sampling import sampled_pattern
from tests.backends import until
from tests.certificates import Certificate, dns
from tests.proxy import documents as docs
from tests.proxy.certs import CA, HOSTNAME, OTHER_CA
from tests.proxy.documents import Document
from tests.proxy.echo import Said, ask, echo, rule, rules, service, to
from tests.proxy.lasthop import Lasthop
from tests.proxy.otlp import Collector, Span, collector

FLUSH = 6
"""Envoy exports spans by five, or every five seconds."""
OTLP = {"name": "otlp", "port": 4317}
SAMPLED, UNSAMPLED = "01", "00"


@pytest.fixture(scope="module")
def traced(module_own: Callable[..., Lasthop]) -> Iterator[Lasthop]:
    with echo("main") as backend:
        lasthop = module_own()
        lasthop.standard()
        served = rules("main", rule("/", to=[to("main")]), host="*.traced")
        lasthop.write("main.yaml", *service("main", backend.port), served, docs.config_map("ca", CA.pem))
        lasthop.start()
        yield lasthop
        assert "refused configuration" not in lasthop.log


def policy(collector: Document | None = None, name: str = "traces", **tracing: Any) -> Document:
    return docs.telemetry_policy(name, collector or docs.to("otel", 4317), **tracing)


def found_at(port: int) -> list[Document]:
    return [docs.service("otel", OTLP), *docs.endpoints("otel", port, port_name="otlp")]


def parent(flags: str) -> dict[str, str]:
    return {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{flags}"}


def requests(gateway: Lasthop, host: str, count: int = FLUSH, **more: Any) -> Said:
    """Sends a number of requests; all are served, even if their spans are lost."""
    said = [ask(gateway, host, **more) for _ in range(count)]
    assert {answer.status for answer in said} == {200}
    return said[-1]


def spans(gateway: Lasthop, server: Collector, host: str, **more: Any) -> list[Span]:
    """Sends requests until spans of that host arrive, and with them all earlier ones."""

    def arrived() -> list[Span]:
        requests(gateway, host, **more)
        return server.of(host)

    arrived_spans: list[Span] = until(arrived, f"spans of {host}")
    return arrived_spans


def until_connected(gateway: Lasthop, host: str, status: str) -> None:
    """Sends requests until the state of the collector is known: single failures prove nothing."""

    def said() -> bool:
        requests(gateway, host)
        return gateway.conditions("XTelemetryPolicy", "traces")["BackendConnected"][0] == status

    until(said, f"BackendConnected is {status}")


def test_spans_have_the_policys_attributes_and_no_text_is_a_command(traced: Lasthop) -> None:
    attributes = [
        {"name": "env", "sourceType": "Literal", "literalValue": "100%PROTOCOL% %REQ(x-user)%"},
        {"name": "user", "sourceType": "Header", "headerName": "X-User"},
        {"name": "absent", "sourceType": "Header", "headerName": "x-absent"},
        {"name": "status", "sourceType": "Attribute", "attributeKey": "http.response.status_code"},
        {"name": "path", "sourceType": "Attribute", "attributeKey": "url.path"},
        {"name": "tool", "sourceType": "Attribute", "attributeKey": "gen_ai.tool.name"},
    ]
    with collector() as server:
        headers = [{"name": "Authorization", "value": "Bearer of-tests"}]
        asked = policy(provider={"headers": headers}, serviceName="shop", spanName="a request", attributes=attributes)
        traced.load("traces.yaml", *found_at(server.port), asked)
        seen = requests(traced, "one-1.traced", path="/p?q=secret", headers={"x-user": "anna"}).seen
        span = spans(traced, server, "one-1.traced", path="/p?q=secret", headers={"x-user": "anna"})[-1]
        assert (span.name, span.service, span.metadata["authorization"]) == ("a request", "shop", "Bearer of-tests")
        assert not [name for name in span.metadata if name.startswith("x-")]
        told = {name: span.attributes.get(name) for name in ("env", "user", "absent", "status", "path", "tool")}
        literal = "100%PROTOCOL% %REQ(x-user)%"
        assert told == {"env": literal, "user": "anna", "absent": None, "status": "200", "path": "/p", "tool": None}
        # The backend can go on with the trace.
        assert seen["headers"]["traceparent"].split("-")[1] in {span.trace_id for span in server.of("one-1.traced")}
        stated = traced.conditions("XTelemetryPolicy", "traces")
        assert stated["Accepted"][0] == stated["ResolvedRefs"][0] == "True"
        assert "gen_ai.tool.name" in stated["PartiallyInvalid"][2]
        until_connected(traced, "one-1.traced", "True")


def test_a_client_decides_for_its_own_trace_unless_the_policy_says_otherwise(traced: Lasthop) -> None:
    with collector() as server:
        traced.load("traces.yaml", *found_at(server.port), policy(samplingRate={"numerator": 0}))
        begun = parent(SAMPLED)
        requests(traced, "one-2.traced")
        requests(traced, "two-2.traced", headers=parent(UNSAMPLED))
        span = spans(traced, server, "three-2.traced", headers=begun)[0]
        assert (span.trace_id, span.parent_id) == tuple(begun["traceparent"].split("-")[1:3])
        assert server.of("one-2.traced") == server.of("two-2.traced") == []
        # An unreadable traceparent belongs to no client.
        assert ask(traced, "one-2.traced", headers={"traceparent": "garbage"}).status == 200
        own: Document = {"samplingRate": {"numerator": 1, "denominator": 1}, "parentBasedSampling": {"mode": "Disabled"}}
        traced.load("traces.yaml", *found_at(server.port), policy(**own))
        assert spans(traced, server, "two-2.traced", headers=parent(UNSAMPLED))


def test_a_share_of_the_traces_that_clients_sample_is_kept_trace_by_trace(traced: Lasthop) -> None:
    half: Document = {"samplingRate": {"numerator": 1, "denominator": 2}}
    with collector() as server:
        traced.load("traces.yaml", *found_at(server.port), policy(**half, parentBasedSampling={"mode": "Enabled", **half}))
        begun = [parent(SAMPLED) for _ in range(60)]
        for headers in (*begun, *(parent(UNSAMPLED) for _ in range(10))):
            requests(traced, "one-3.traced", 1, headers=headers)
        expected = {
            headers["traceparent"].split("-")[1]
            for headers in begun
            if re.search(sampled_pattern(500_000), headers["traceparent"])
        }
        kept = next(headers for headers in begun if headers["traceparent"].split("-")[1] in expected)
        spans(traced, server, "three-3.traced", headers=kept)
        assert {span.trace_id for span in server.of("one-3.traced")} == expected
        requests(traced, "two-3.traced", 100)
        spans(traced, server, "three-3.traced", headers=kept)
        assert 20 <= len(server.of("two-3.traced")) <= 80


def test_a_collector_is_verified_by_its_policy_and_gets_nothing_otherwise(traced: Lasthop) -> None:
    good, bad = (Certificate("otel", ca, sans=dns(HOSTNAME)) for ca in (CA, OTHER_CA))
    secured = docs.policy("otel", HOSTNAME, "ca")
    with collector(good) as server, collector(bad) as impostor:
        traced.load("traces.yaml", *found_at(impostor.port), secured, policy())
        until_connected(traced, "one-4.traced", "False")
        assert traced.conditions("BackendTLSPolicy", "otel")["BackendConnected"][1] == "HandshakeFailed"
        requests(traced, "one-4.traced")
        traced.load("traces.yaml", *found_at(server.port), secured, policy())
        assert spans(traced, server, "two-4.traced")
        until_connected(traced, "two-4.traced", "True")
        assert impostor.spans == []
    (line,) = [hop for hop in json.loads(traced.ask("/api/audit")[1])["hops"] if hop["service"] == "shop/otel"]
    assert (line["manner"], line["routes"]) == ("verified", ["XTelemetryPolicy shop/traces"])


def test_a_policy_that_cannot_be_fulfilled_means_no_export_and_never_plaintext(traced: Lasthop) -> None:
    with collector() as server:
        traced.load("traces.yaml", *found_at(server.port), docs.policy("otel", HOSTNAME, "missing"), policy())
        assert traced.conditions("XTelemetryPolicy", "traces")["ResolvedRefs"][:2] == ("False", "InvalidBackendTLS")
        requests(traced, "one-5.traced")
        traced.load("traces.yaml", *found_at(server.port), docs.policy("otel", HOSTNAME, "ca"), policy())
        until_connected(traced, "one-5.traced", "False")
        traced.load("traces.yaml", *found_at(server.port), policy())
        assert spans(traced, server, "two-5.traced")
        assert server.of("one-5.traced") == []


def test_a_collector_of_another_namespace_needs_a_grant(traced: Lasthop) -> None:
    with collector() as server:
        elsewhere = [docs.service("ops/otel", OTLP), *docs.endpoints("ops/otel", server.port, port_name="otlp")]
        asked = policy(docs.to("otel", 4317, namespace="ops"))
        traced.load("traces.yaml", *elsewhere, asked)
        assert traced.conditions("XTelemetryPolicy", "traces")["ResolvedRefs"][:2] == ("False", "RefNotPermitted")
        # Neither does a route that may refer to it open it for the policy.
        of_route = grant("HTTPRoute", docs.GATEWAY_API)
        traced.load("traces.yaml", *elsewhere, asked, of_route)
        assert traced.conditions("XTelemetryPolicy", "traces")["ResolvedRefs"][:2] == ("False", "RefNotPermitted")
        requests(traced, "one-6.traced")
        traced.load("traces.yaml", *elsewhere, asked, grant("XTelemetryPolicy", docs.EXPERIMENTAL_API))
        assert spans(traced, server, "two-6.traced")
        assert server.of("one-6.traced") == []


def grant(kind: str, api: str) -> Document:
    source = {"group": api.partition("/")[0], "kind": kind, "namespace": "shop"}
    to = [{"group": "", "kind": "Service"}]
    return docs.obj(docs.GATEWAY_API, "ReferenceGrant", "ops/grant", spec={"from": [source], "to": to})


def test_the_older_of_two_policies_applies_even_if_it_disables_tracing(traced: Lasthop) -> None:
    with collector() as server:
        late = policy(name="late", created="2026-01-02T00:00:00Z")
        early = docs.telemetry_policy("early", None, created="2026-01-01T00:00:00Z")
        traced.load("traces.yaml", *found_at(server.port), late, early)
        assert traced.conditions("XTelemetryPolicy", "late")["Accepted"][:2] == ("False", "Conflicted")
        assert traced.conditions("XTelemetryPolicy", "early")["Accepted"][0] == "True"
        assert "traceparent" not in requests(traced, "one-7.traced").seen["headers"]
        traced.load("traces.yaml", *found_at(server.port), late)
        assert spans(traced, server, "two-7.traced")
        assert server.of("one-7.traced") == []


def test_a_missing_gateway_is_reported_in_the_status(traced: Lasthop) -> None:
    traced.load("traces.yaml", docs.telemetry_policy("lost", None, gateway="nowhere"))
    stated = traced.conditions("XTelemetryPolicy", "lost", "nowhere")
    assert stated["Accepted"][:2] == ("False", "TargetNotFound")
    with contextlib.suppress(FileNotFoundError):
        (traced.folder / "traces.yaml").unlink()
