"""Findings: certificates of a Gateway's own that expire soon or have expired, in the same window as CAs."""

from __future__ import annotations

from collections.abc import Iterator

from lasthop.api.meta import Key
from lasthop.plan.finding import Finding, Severity
from lasthop.resolve.certificates import SOON, KeyPair, key_pair
from lasthop.resolve.gateways import client_certificate, gateway
from lasthop.resolve.trust import day
from lasthop.store.graph import Graph, Output


def expiring_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(_found(g, key)))


def _found(g: Graph, key: Key) -> Iterator[Finding]:
    plan, own = g(gateway, key), g(client_certificate, key)
    numbers: dict[Key, int] = {}
    for listener in plan.listeners if plan else ():
        number = numbers[listener.owner] = numbers.get(listener.owner, -1) + 1
        for secret in listener.certificates:
            yield from _of(g, listener.owner, secret, f"listener {listener.name}", f"spec.listeners[{number}].tls")
    if isinstance(own, Key):
        yield from _of(g, key, own, "client certificate for backends", "spec.tls.backend.clientCertificateRef")


def _of(g: Graph, holder: Key, secret: Key, what: str, field: str) -> Iterator[Finding]:
    pair = g(key_pair, secret)
    if not isinstance(pair, KeyPair) or g.before(pair.not_after - SOON.total_seconds()):
        return
    over = not g.before(pair.not_after)
    message = (
        f"{what}: the certificate in {secret} ({pair.subject}) {'expired' if over else 'expires'} on {day(pair.not_after)}."
    )
    severity = Severity.ERROR if over else Severity.WARNING
    yield Finding(holder, "CertificateExpires", message, "Renew it.", field, severity)


EXPIRING = Output("findings-expiring", "Gateway", expiring_findings)
