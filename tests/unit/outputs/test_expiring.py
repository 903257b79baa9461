"""Certificates of a Gateway's own are warned of as CAs are: 30 days before they expire."""

from __future__ import annotations

import datetime

from lasthop.engine.engine import Engine
from lasthop.engine.plan.finding import Severity
from tests.certificates import Certificate, dns
from tests.world import keyed, mk_class, mk_gateway, mk_secret

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
DAYS = datetime.timedelta(days=1)
LEAF = Certificate("web", sans=dns("www.example"), valid=(START, START + 90 * DAYS))


def _found(after_days: int) -> list[tuple[Severity, str, str]]:
    tls = {"certificateRefs": [{"name": "web-tls"}]}
    listeners = [
        {"name": "http", "port": 80, "protocol": "HTTP"},
        {"name": "https", "port": 443, "protocol": "HTTPS", "hostname": "www.example", "tls": tls},
    ]
    backend = {"backend": {"clientCertificateRef": {"name": "web-tls"}}}
    engine = Engine(now=(START + after_days * DAYS).timestamp())
    gateway = mk_gateway("a/gw", listeners, tls=backend)
    engine.apply(keyed(mk_class(), gateway, mk_secret("a/web-tls", LEAF.pem, LEAF.key_pem)))
    engine.settle()
    return [(f.severity, f.field, f.message) for f in engine.findings() if "web-tls" in f.message]


def test_a_listeners_and_a_client_certificate_are_warned_of_30_days_before_they_expire() -> None:
    assert _found(59) == []
    by_field = {field: (severity, message) for severity, field, message in _found(61)}
    assert set(by_field) == {"spec.listeners[1].tls", "spec.tls.backend.clientCertificateRef"}
    assert all(severity is Severity.WARNING and "expires on 2026-04-01" in message for severity, message in by_field.values())
