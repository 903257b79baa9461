"""Status of policies and XBackends: one entry for each Gateway that reaches them."""

from __future__ import annotations

from lasthop.base.api.backends import KIND as XBACKEND
from lasthop.base.api.backends import XBackend
from lasthop.base.api.gateway import GROUP
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.base.api.policies import AncestorReference, RejectedPolicy
from lasthop.base.api.status import AncestorStatus, ConditionStatus, PolicyStatus
from lasthop.base.api.telemetry import XTelemetryPolicy
from lasthop.base.api.traffic import XBackendTrafficPolicy
from lasthop.engine.outputs.status.conditions import stated
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import failed
from lasthop.engine.plan.problem import invalid
from lasthop.engine.resolve.backends import backend_traffic, xbackend_conditions
from lasthop.engine.resolve.gateways import telemetry, telemetry_conditions
from lasthop.engine.resolve.gateways.gateways import age
from lasthop.engine.resolve.policies.ancestors import MAX_ANCESTORS, ancestors, reached_by
from lasthop.engine.resolve.policies.conditions import conditions
from lasthop.engine.resolve.policies.targets import service_of
from lasthop.engine.resolve.policies.texts import read_texts
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.stages import Output
from lasthop.engine.store.store import read


@query
def policy_status(g: Graph, key: Key) -> PolicyStatus | None:
    policy, rejected = read_texts(g, key)
    if policy is None:
        return _rejected_status(g, key, rejected) if rejected else None
    entries = [entry(gateway, stated(conditions(g, key, gateway), policy)) for gateway in ancestors(g, key).gateways]
    return PolicyStatus(tuple(entries)) if entries else None


def _rejected_status(g: Graph, key: Key, obj: RejectedPolicy) -> PolicyStatus | None:
    """Returns the status of a policy that cannot be read whole: invalid wherever what it names is reached."""
    services = ((service, t.section_name) for t in obj.targets if (service := service_of(key, t)))
    reached = {gateway for service, section in services for gateway, _ in reached_by(g, service, section)}
    refused = stated((failed(reasons.ACCEPTED, invalid(f"could not be read: {obj.message}")),), obj)
    entries = [entry(gateway, refused) for gateway in sorted(reached, key=lambda gateway: age(g, gateway))]
    return PolicyStatus(tuple(entries[:MAX_ANCESTORS])) if entries else None


def entry(gateway: Key, conditions: tuple[ConditionStatus, ...]) -> AncestorStatus:
    return AncestorStatus(AncestorReference(gateway.name, gateway.namespace, GROUP, "Gateway"), CONTROLLER_NAME, conditions)


POLICY_STATUS = Output("status-policies", "BackendTLSPolicy", policy_status)


@query
def xbackend_status(g: Graph, key: Key) -> PolicyStatus | None:
    obj = read(g, key, XBackend)
    if obj is None:
        return None
    entries = [
        entry(gateway, stated(xbackend_conditions.conditions(g, key, gateway), obj))
        for gateway in xbackend_conditions.gateways(g, key)
    ]
    return PolicyStatus(tuple(entries)) if entries else None


XBACKEND_STATUS = Output("status-xbackends", XBACKEND, xbackend_status)


@query
def traffic_status(g: Graph, key: Key) -> PolicyStatus | None:
    obj = read(g, key, XBackendTrafficPolicy)
    if obj is None:
        return None
    entries = [
        entry(gateway, stated(backend_traffic.conditions(g, key, gateway), obj))
        for gateway in backend_traffic.traffic_ancestors(g, key).gateways
    ]
    return PolicyStatus(tuple(entries)) if entries else None


TRAFFIC_STATUS = Output("status-traffic-policies", backend_traffic.KIND, traffic_status)


@query
def telemetry_status(g: Graph, key: Key) -> PolicyStatus | None:
    obj = read(g, key, XTelemetryPolicy)
    if obj is None:
        return None
    entries = [
        entry(gateway, stated(telemetry_conditions.conditions(g, key, gateway), obj))
        for gateway in telemetry.telemetry_ancestors(g, key).gateways
    ]
    return PolicyStatus(tuple(entries)) if entries else None


TELEMETRY_STATUS = Output("status-telemetry-policies", telemetry.KIND, telemetry_status)
