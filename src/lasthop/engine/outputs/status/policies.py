"""Statuses of policies and XBackends: one entry per Gateway that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.gateway import GROUP
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key, Object
from lasthop.base.api.policies import AncestorReference, RejectedPolicy
from lasthop.base.api.status import AncestorStatus, PolicyStatus, Status
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.outputs.status.crashed import crashed_status
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed
from lasthop.engine.plan.problem import invalid
from lasthop.engine.resolve.backends import backend_traffic, xbackend_conditions
from lasthop.engine.resolve.gateways import telemetry
from lasthop.engine.resolve.gateways.gateways import age
from lasthop.engine.resolve.policies import conditions
from lasthop.engine.resolve.policies.ancestors import MAX_ANCESTORS, ancestors, reached_by
from lasthop.engine.resolve.policies.targets import service_of
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.node import Crash
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import OBJECTS


class PolicyReport(msgspec.Struct, frozen=True):
    """The conditions of a policy, for its status and its findings."""

    status: Status | None
    conditions: Mapping[Key, tuple[Condition, ...]] = {}
    """Conditions by Gateway."""


class _Reported(NamedTuple):
    gateways: Callable[[Graph, Key], Iterable[Key]]
    conditions: Callable[[Graph, Key, Key], tuple[Condition, ...]]


_REPORTED: Final = {
    "BackendTLSPolicy": _Reported(lambda g, key: ancestors(g, key).gateways, conditions.conditions),
    XBACKEND: _Reported(xbackend_conditions.gateways, xbackend_conditions.conditions),
    backend_traffic.KIND: _Reported(
        lambda g, key: backend_traffic.TRAFFIC.ancestors(g, key).gateways, backend_traffic.conditions
    ),
    telemetry.KIND: _Reported(lambda g, key: telemetry.TELEMETRY.ancestors(g, key).gateways, telemetry.conditions),
}


@query
def policy_report(g: Graph, key: Key) -> PolicyReport:
    """Returns the status and the conditions at each Gateway. One query computes both, because they are read together."""
    report = g.shielded(_report, key)
    return PolicyReport(crashed_status(g, key)) if isinstance(report, Crash) else report


def _report(g: Graph, key: Key) -> PolicyReport:
    obj, kind = OBJECTS.of(g, key), _REPORTED[key.kind]
    if obj is None:
        return PolicyReport(None)
    if isinstance(obj, RejectedPolicy):
        if obj.last_good is None:
            return PolicyReport(_rejected_status(g, key, obj))
        obj = obj.last_good
    by_gateway = {gateway: kind.conditions(g, key, gateway) for gateway in kind.gateways(g, key)}
    return PolicyReport(_status((gateway, at, obj) for gateway, at in by_gateway.items()), by_gateway)


def _rejected_status(g: Graph, key: Key, obj: RejectedPolicy) -> PolicyStatus | None:
    """Returns the status of a policy that cannot be read completely: invalid at every Gateway that reaches its targets."""
    services = ((service, t.section_name) for t in obj.targets if (service := service_of(key, t)))
    reached = {gateway for service, section in services for gateway, _ in reached_by(g, service, section)}
    refused = (failed(reasons.ACCEPTED, invalid(f"could not be read: {obj.message}")),)
    return _status((gateway, refused, obj) for gateway in sorted(reached, key=lambda gateway: age(g, gateway))[:MAX_ANCESTORS])


def _status(entries: Iterable[tuple[Key, tuple[Condition, ...], Object]]) -> PolicyStatus | None:
    statuses = [
        AncestorStatus(AncestorReference(key.name, key.namespace, GROUP, "Gateway"), CONTROLLER_NAME, stated(conditions, obj))
        for key, conditions, obj in entries
    ]
    return PolicyStatus(tuple(statuses)) if statuses else None


POLICY_STATUS: Final[tuple[Output[Key, Any], ...]] = tuple(
    Output(f"status-{kind}", kind, policy_report, part=lambda report: report.status) for kind in _REPORTED
)
