"""/metrics after real traffic: its counts are correct, its names follow Prometheus' rules, and alert rules and dashboard use
only existing metrics."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.backends import backend, until
from tests.certificates import DAY, NOW
from tests.promql import used
from tests.proxy import documents as docs
from tests.proxy.certs import issued, with_alpn
from tests.proxy.lasthop import Lasthop
from tests.proxy.scrape import BACKEND, Scrape, complete, write

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"
PAGE = Path(__file__).parents[2] / "docs/prometheus.md"
SCRAPED = {"instance", "job"}
"""Labels that a Prometheus adds."""


@pytest.fixture(scope="module")
def scraped(module_own: Callable[..., Lasthop]) -> Iterator[tuple[Lasthop, Scrape]]:
    """A gateway with backends of every manner, after some requests to each."""
    with backend(issued()) as good, backend(issued("old.example")) as other, backend() as plain:
        lasthop = module_own()
        write(lasthop, good, other, plain)
        yield lasthop, until(lambda: complete(lasthop), "what happened is counted")


def test_requests_are_counted_by_backend_and_by_route(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    route = {"gateway": "shop/web", "kind": "HTTPRoute", "namespace": "shop"}
    for name, code in (("good", "2xx"), ("waived", "2xx"), ("plain", "2xx"), ("wrong", "5xx")):
        requests = scrape.value("lasthop_backend_requests_total", **BACKEND, service=name, code=code)
        assert 4 <= requests <= 8, name
        assert scrape.value("lasthop_route_requests_total", **route, route=name, code=code) == requests
        assert scrape.value("lasthop_route_request_duration_seconds_count", **route, route=name) == requests
        assert scrape.value("lasthop_backend_request_duration_seconds_bucket", **BACKEND, service=name, le="+Inf") == requests
    assert scrape.value("lasthop_backend_requests_total", **BACKEND, service="good", code="5xx") == 0


def test_handshakes_are_counted_by_outcome(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    name = "lasthop_backend_tls_handshakes_total"
    assert scrape.value(name, **BACKEND, service="good", outcome="success") >= 1
    assert scrape.value(name, **BACKEND, service="wrong", outcome="wrong_name") >= 4
    assert scrape.value(name, **BACKEND, service="wrong", outcome="success") == 0
    assert scrape.value("lasthop_backend_connect_failures_total", **BACKEND, service="wrong") >= 4
    assert not [key for key in scrape.samples if key[0] == name and ("service", "plain") in key[1]]


def test_how_each_backend_is_verified_and_how_it_fares_can_be_joined(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    for service, mode, health in (
        ("good", "Verified", "working"),
        ("wrong", "Verified", "failing"),
        ("waived", "WaivedAll", "working"),
        ("plain", "Plaintext", "working"),
    ):
        assert scrape.value("lasthop_backend_tls_verification", **BACKEND, service=service, mode=mode) == 1
        assert scrape.value("lasthop_backend_health", **BACKEND, service=service, health=health) == 1
    weakened = [labels for name, labels in scrape.samples if name == "lasthop_backend_tls_weakened"]
    assert weakened == [frozenset({**BACKEND, "service": "lost"}.items())]


def test_certificates_have_the_time_of_their_end(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    name = "lasthop_certificate_expiry_timestamp_seconds"
    ends = {dict(labels)["role"]: value for (metric, labels), value in scrape.samples.items() if metric == name}
    assert ends.keys() == {"ca", "listener"}
    leaf = scrape.value("lasthop_backend_certificate_expiry_timestamp_seconds", **BACKEND, service="good")
    assert all(time.time() < end < time.time() + 4000 * 86400 for end in (*ends.values(), leaf))
    assert scrape.value("lasthop_waiver_expiry_timestamp_seconds", namespace="shop", waiver="w") > time.time() + 39 * 86400


def test_the_process_and_its_build_are_there(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    assert scrape.value("process_resident_memory_bytes") > 1 << 20
    (build,) = scrape.families["lasthop_build_info"].samples
    assert build.value == 1 and build.labels["version"]
    assert scrape.value("lasthop_proxies_reporting", gateway="shop/web") == 1


def test_names_are_as_prometheus_wants_them(scraped: tuple[Lasthop, Scrape]) -> None:
    """What `promtool check metrics` checks, as far as it applies."""
    _, scrape = scraped
    for name, family in scrape.families.items():
        assert family.documentation, name
        assert re.fullmatch(r"(lasthop|process)_[a-z0-9_]+", name)
        assert not re.search(r"_(milliseconds|minutes|hours|days|kilobytes|gauge|counter|histogram)(_|$)", name), name
        assert not name.endswith(("_count", "_sum", "_bucket", "_total")), name
        totals = {sample.name for sample in family.samples if sample.name.endswith("_total")}
        assert bool(totals) <= (family.type == "counter"), name
        for sample in family.samples:
            assert family.type == "histogram" or "le" not in sample.labels
            assert all(re.fullmatch(r"[a-z_]+", label) for label in sample.labels), sample.name
    assert not any("\x1b" in value for _, labels in scrape.samples for _, value in labels)


def sources() -> list[tuple[str, str, set[str]]]:
    """(where, expression, labels that its texts name)."""
    expressions = []
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            expressions.append((rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts))))
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expressions.append((panel["title"], target["expr"], set(re.findall(r"{{(\w+)}}", target["legendFormat"]))))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            expressions.append((variable["name"], f'{metric}{{{label}=""}}', set()))
    rows = re.findall(r"^\| (.+) \| `(.+)` \|$", PAGE.read_text().partition("## Queries to begin with")[2], re.MULTILINE)
    assert len(rows) > 5
    return [*expressions, *((question, query, set[str]()) for question, query in rows)]


def test_rules_and_dashboard_use_only_metrics_and_labels_that_are_there(scraped: tuple[Lasthop, Scrape]) -> None:
    _, scrape = scraped
    assert len(sources()) > 30
    for where, expression, named in sources():
        asked = used(expression)
        assert asked.metrics, where
        for metric, labels in asked.metrics.items():
            assert metric in scrape.labels, f"{where}: no sample of {metric} in a real scrape"
            assert labels <= scrape.labels[metric], f"{where}: {metric} has no {labels - scrape.labels[metric]}"
        there = set().union(*(scrape.labels[metric] for metric in asked.metrics)) | SCRAPED
        assert asked.grouped <= there | {"le"}, f"{where}: {asked.grouped - there}"
        assert named <= asked.grouped | SCRAPED, f"{where}: {named - asked.grouped} is gone after grouping"


def health(lasthop: Lasthop, service: str) -> set[str]:
    samples = Scrape(lasthop.ask("/metrics")[1].decode()).samples
    names = (dict(labels) for name, labels in samples if name == "lasthop_backend_health")
    return {labels["health"] for labels in names if labels["service"] == service}


def until_health(lasthop: Lasthop, service: str, expected: str) -> None:
    def said() -> bool:
        lasthop.get(service)
        return health(lasthop, service) == {expected}

    until(said, f"{service} is {expected}")


def test_an_endpoint_that_is_gone_is_neither_failing_nor_about_to_expire(scraped: tuple[Lasthop, Scrape]) -> None:
    lasthop, _ = scraped
    name, ends = "lasthop_backend_certificate_expiry_timestamp_seconds", NOW + 90 * DAY
    with (
        backend(issued("old.example")) as wrong,
        backend(issued()) as soon,
        backend(issued(valid=(NOW - DAY, ends))) as good,
    ):

        def expiry() -> float:
            return Scrape(lasthop.ask("/metrics")[1].decode()).value(name, **BACKEND, service="moved")

        for served, expected in ((wrong, "failing"), (soon, "working"), (good, "working")):
            lasthop.load("moved.yaml", *docs.hop("moved", served.port, docs.policy("moved", "api.example", "ca")))
            until_health(lasthop, "moved", expected)
            if served is not wrong:
                until(lambda: expiry() > 0, "the certificate is known")
        until(lambda: expiry() == int(ends.timestamp()), "only the certificate of the endpoint that is there counts")
        # Nor has a backend a certificate to show that is connected to in plaintext.
        with backend() as plain:
            lasthop.load("moved.yaml", *docs.hop("moved", plain.port))
            until_health(lasthop, "moved", "working")
            until(lambda: expiry() == 0, "no certificate is known")
    (lasthop.folder / "moved.yaml").unlink()


def test_upgrades_count_for_their_backend(scraped: tuple[Lasthop, Scrape]) -> None:
    lasthop, _ = scraped
    with backend(with_alpn(issued(), "h2"), h2_only=True) as served:
        lasthop.load("upgraded.yaml", *docs.hop("upgraded", served.port, docs.policy("upgraded", "api.example", "ca")))
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": "x"}

        def partly() -> bool:
            assert lasthop.get("upgraded").status == 200
            assert lasthop.get("upgraded", headers=headers).status == 503
            return health(lasthop, "upgraded") == {"partly failing"}

        until(partly, "requests succeed and upgrades fail")
        counted = Scrape(lasthop.ask("/metrics")[1].decode())
        assert counted.value("lasthop_backend_requests_total", **BACKEND, service="upgraded", code="5xx") > 0
    (lasthop.folder / "upgraded.yaml").unlink()


def test_removed_objects_have_no_series(scraped: tuple[Lasthop, Scrape]) -> None:
    lasthop, _ = scraped
    (lasthop.folder / "lost.yaml").unlink()

    def gone() -> bool:
        return b'"lost"' not in lasthop.ask("/metrics")[1]

    until(gone, "no series names what is gone")
