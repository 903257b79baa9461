"""Findings on GatewayClasses, Gateways and ListenerSets: the problems that their conditions report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lasthop.base.api.gateway import Gateway
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.findings.foreign import unserved_set
from lasthop.engine.outputs.status.gateways import class_conditions, gateway_conditions, listener_programmed, set_conditions
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition
from lasthop.engine.plan.finding import Finding, Severity, make_finding
from lasthop.engine.plan.listener import ListenerPlan
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.gateways.allowed_listeners import unusable_rule
from lasthop.engine.resolve.gateways.gateways import gateway, without_effect
from lasthop.engine.resolve.gateways.listener_conditions import listener_conditions
from lasthop.engine.resolve.gateways.listener_sets import listener_set
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

REPORTED_ELSEWHERE: Final = frozenset(
    (reasons.LISTENERS_NOT_VALID, reasons.PARENT_NOT_ACCEPTED, reasons.PARENT_NOT_PROGRAMMED, reasons.NOT_ASSIGNED)
)
"""Reasons of Gateways and ListenerSets that only point to the listeners, to the Gateway or to other conditions, which have
their own findings."""

REPORTED_BY_GATEWAYS: Final = frozenset({reasons.INVALID, reasons.NO_VALID_CA_CERTIFICATE})
"""Reasons of listeners that the Gateway reports too."""


@query
def class_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    return tuple(problem.on(key) for problem in _problems(class_conditions(g, key)))


@query
def gateway_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    obj, owner = read(g, key, Gateway), gateway(g, key)
    if obj is None or owner is None:
        return ()
    listeners = [listener for listener in owner.listeners if listener.owner == key]
    ignored = ignored_scope(key, "defaultScope", obj.spec.default_scope)
    unusable = unusable_rule(g, key)
    findings = (
        *_findings(g, key, key, gateway_conditions(g, owner), listeners),
        *ignored,
        *([unusable.on(key)] if unusable else []),
    )
    return tuple(dict.fromkeys(findings))


@query
def listener_set_findings(g: Graph, key: Key) -> tuple[Finding, ...]:
    plan = listener_set(g, key)
    if plan is None:
        return (unserved_set(g, key),)
    return tuple(dict.fromkeys(_findings(g, key, plan.gateway, set_conditions(g, plan), plan.listeners)))


def ignored_scope(key: Key, field: str, scope: str) -> Iterator[Finding]:
    if message := without_effect(field, scope):
        yield make_finding(key, reasons.UNSUPPORTED_VALUE, message, field=f"spec.{field}", severity=Severity.WARNING)


def _problems(conditions: Iterable[Condition]) -> Iterator[Problem]:
    return (c.problem for c in conditions if c.problem and c.reason != reasons.PENDING)


def _insecure_frontend(key: Key, conditions: Iterable[Condition]) -> Iterator[Finding]:
    for condition in conditions:
        if condition.type == reasons.INSECURE_FRONTEND_VALIDATION_MODE:
            yield make_finding(key, condition.type, condition.message, field="spec.tls.frontend")


def _findings(
    g: Graph, key: Key, gateway: Key, conditions: tuple[Condition, ...], listeners: Iterable[ListenerPlan]
) -> Iterator[Finding]:
    reported: set[str] = set()
    for number, listener in enumerate(listeners):
        of_listener = (*listener_conditions(g, listener), listener_programmed(g, gateway, listener))
        yield from _of_listener(key, listener.name, of_listener, f"spec.listeners[{number}]")
        reported |= {c.message for c in of_listener if c.problem and c.reason not in REPORTED_BY_GATEWAYS}
    references = tuple(condition for condition in conditions if condition.type == reasons.RESOLVED_REFS)
    yield from _warnings(key, references, "", "spec.tls.backend.clientCertificateRef")
    yield from _insecure_frontend(key, conditions)
    # A port that cannot be bound is reported on the listener; a Gateway with no other port repeats it.
    yield from (p.on(key) for p in _problems(conditions) if p.reason not in REPORTED_ELSEWHERE and p.text not in reported)


def _of_listener(key: Key, name: str, conditions: tuple[Condition, ...], field: str) -> Iterator[Finding]:
    where = f"listener {name}"
    for problem in _problems(conditions):
        if problem.reason not in REPORTED_BY_GATEWAYS:
            yield problem.within(where).at(field).on(key)
    yield from _warnings(key, conditions, f"{where}: ", f"{field}.tls")


def _warnings(key: Key, conditions: tuple[Condition, ...], where: str, field: str) -> Iterator[Finding]:
    """Yields the messages of positive conditions: warnings about certificates that expire soon or are out of date."""
    for condition in conditions:
        if condition.type in (reasons.ACCEPTED, reasons.RESOLVED_REFS) and condition.status and condition.message:
            yield make_finding(key, reasons.WARNING, f"{where}{condition.message}", field=field)
