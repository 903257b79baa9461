"""Compares responses by delivery of routes, for hostnames that clients write in another form than the route."""

from __future__ import annotations

import time
from pathlib import Path

from bench.route_delivery.deliveries import DELIVERIES
from bench.route_delivery.emitted import Emitted
from bench.route_delivery.proxy import PATIENCE, Proxy
from lasthop.engine.outputs.envoy.resource import LISTENER

HELD = 1.0
"""Seconds for which routes are held back from a listener that is there."""


def check(home: Path, emitted: Emitted) -> dict[str, dict[str, str]]:
    """Returns the answers by question, then by delivery."""
    answers: dict[str, dict[str, str]] = {}
    for name, make in DELIVERIES.items():
        proxy = Proxy(home / f"check-{name}", make(emitted.table), emitted)
        try:
            for question, answer in _answers(proxy, emitted).items():
                answers.setdefault(question, {})[name] = answer
        finally:
            proxy.stop()
    return answers


def _answers(proxy: Proxy, emitted: Emitted) -> dict[str, str]:
    delivery, answers = proxy.delivery, {}
    hosts = [*emitted.hosts(3), emitted.host("s00003", domain="*.wild.example")]
    proxy.ads.put(delivery.changed(hosts))
    proxy.start()
    time.sleep(HELD)
    answers["Envoy started, control plane away"] = (
        "no connection" if not proxy.accepts() else str(proxy.status("s00000.example"))
    )
    proxy.ads.hold(delivery.holds)
    proxy.ads.start()
    answers["it comes, its routes are late"] = _while_held(proxy)
    proxy.ads.hold()
    proxy.until("s00000.example")
    for question, host in {
        "exact name": "s00000.example",
        "in upper case": "S00000.EXAMPLE",
        "with a port": f"s00000.example:{proxy.port}",
        "with a dot at the end": "s00000.example.",
        "under a wildcard": "a.wild.example",
        "unknown name": "unknown.example",
    }.items():
        answers[question] = str(proxy.status(host))
    proxy.edit([emitted.host("s00004")], "s00004.example", "/")
    answers["added just now"] = str(proxy.status("s00004.example"))
    proxy.ads.stop()
    time.sleep(HELD)
    answers["control plane gone"] = str(proxy.status("s00001.example"))
    return answers


def _while_held(proxy: Proxy) -> str:
    """Returns the response to a client after the listener is sent and before its routes are."""
    end = time.perf_counter() + PATIENCE
    while LISTENER not in proxy.ads.answered:
        assert time.perf_counter() < end, proxy.log_tail()
        time.sleep(0.01)
    time.sleep(HELD)
    return "no connection" if not proxy.accepts() else str(proxy.status("s00000.example"))
