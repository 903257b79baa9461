"""Status of policies and XBackends: one entry for each Gateway that reaches them."""

from __future__ import annotations

from lasthop.api.backends import KIND as XBACKEND
from lasthop.api.backends import XBackend
from lasthop.api.gateway import GROUP
from lasthop.api.kinds import CONTROLLER_NAME
from lasthop.api.meta import Key
from lasthop.api.policies import AncestorReference, RejectedPolicy
from lasthop.api.status import AncestorStatus, ConditionStatus, PolicyStatus
from lasthop.api.telemetry import XTelemetryPolicy
from lasthop.api.traffic import XBackendTrafficPolicy
from lasthop.outputs.status.conditions import stated
from lasthop.plan import reasons
from lasthop.plan.condition import failed
from lasthop.plan.problem import invalid
from lasthop.resolve import backend_traffic, telemetry, telemetry_conditions, xbackend_conditions
from lasthop.resolve.gateways import age
from lasthop.resolve.policies.ancestors import MAX_ANCESTORS, ancestors, reached_by
from lasthop.resolve.policies.conditions import conditions
from lasthop.resolve.policies.targets import service_of
from lasthop.resolve.policies.texts import read_texts
from lasthop.store.graph import Graph, query
from lasthop.store.stages import Output
from lasthop.store.store import read


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
