"""A gateway with backends of every manner, and its metrics after some requests to each."""

from __future__ import annotations

from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.backends import Backend
from tests.certificates import DAY, NOW, Certificate, dns
from tests.ports import free_port
from tests.proxy import documents as docs
from tests.proxy.certs import CA
from tests.proxy.lasthop import Lasthop

BACKEND: Final = {"gateway": "shop/web", "kind": "Service", "namespace": "shop", "port": "443"}


class Scrape:
    def __init__(self, text: str) -> None:
        self.families: dict[str, Metric] = {}
        self.labels: dict[str, set[str]] = {}
        """Of the samples, by their names."""
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.families[family.name] = family
            for sample in family.samples:
                self.labels.setdefault(sample.name, set()).update(sample.labels)
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float:
        return self.samples.get((name, frozenset(labels.items())), 0.0)


def write(lasthop: Lasthop, good: Backend, other: Backend, plain: Backend) -> None:
    lasthop.standard(**docs.with_profile("lenient"))
    lasthop.write("profile.yaml", docs.profile("lenient", waivers="Allow"))
    lasthop.start()
    waived = docs.policy("waived", "api.example", docs.own("w", "VerificationWaiver"))
    lost = docs.policy("lost", "api.example", "ca")
    wrong = docs.policy("wrong", "api.example", "ca")
    own = docs.gateway("secure", docs.https(free_port(), "listener"))
    lasthop.load(
        "objects.yaml",
        docs.config_map("ca", CA.pem, CA.crl()),
        docs.waiver("w", "All", expires=f"{NOW + 40 * DAY:%FT%TZ}"),
        own,
        docs.key_pair("listener", Certificate("www.example", CA, sans=dns("www.example"))),
        *docs.hop("good", good.port, docs.policy("good", "api.example", "ca")),
        *docs.hop("wrong", other.port, wrong),
        *docs.hop("waived", good.port, waived),
        *docs.hop("plain", plain.port),
    )
    lasthop.load("lost.yaml", *docs.hop("lost", plain.port, lost))
    for name, status in (("good", 200), ("wrong", 503), ("waived", 200), ("plain", 200)):
        lasthop.until_status(name, status)
        for _ in range(4):
            assert lasthop.get(name).status == status
    lasthop.load("lost.yaml", *docs.hop("lost", plain.port))
    lasthop.until_status("lost", 200)


def complete(lasthop: Lasthop) -> Scrape | None:
    scrape = Scrape(lasthop.ask("/metrics")[1].decode())
    failed = scrape.value("lasthop_backend_requests_total", **BACKEND, service="wrong", code="5xx") >= 4
    working = scrape.value("lasthop_backend_health", **BACKEND, service="good", health="working")
    failing = scrape.value("lasthop_backend_health", **BACKEND, service="wrong", health="failing")
    counted = scrape.value("lasthop_backend_connect_failures_total", **BACKEND, service="wrong") >= 4
    return scrape if failed and working and failing and counted else None
