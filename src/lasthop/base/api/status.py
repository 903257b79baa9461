"""Declares the statuses that we write."""

from __future__ import annotations

from lasthop.base.api.gateway import GatewayAddress, RouteGroupKind
from lasthop.base.api.meta import Struct
from lasthop.base.api.policies import AncestorReference
from lasthop.base.api.routes import ParentReference


class ConditionStatus(Struct, frozen=True, omit_defaults=False):
    type: str
    status: str
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""
    """Empty until the status is merged with the old one."""


class ParentStatus(Struct, frozen=True, omit_defaults=False):
    parent_ref: ParentReference
    controller_name: str
    conditions: tuple[ConditionStatus, ...]


class RouteStatus(Struct, frozen=True, omit_defaults=False):
    parents: tuple[ParentStatus, ...] = ()


class ListenerStatus(Struct, frozen=True, omit_defaults=False):
    name: str
    attached_routes: int
    supported_kinds: tuple[RouteGroupKind, ...]
    conditions: tuple[ConditionStatus, ...]


class GatewayStatus(Struct, frozen=True, omit_defaults=False):
    addresses: tuple[GatewayAddress, ...] = ()
    conditions: tuple[ConditionStatus, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()
    attached_listener_sets: int = 0


class ListenerSetStatus(Struct, frozen=True, omit_defaults=False):
    conditions: tuple[ConditionStatus, ...] = ()
    listeners: tuple[ListenerStatus, ...] = ()


class SupportedFeature(Struct, frozen=True, omit_defaults=False):
    name: str


class GatewayClassStatus(Struct, frozen=True, omit_defaults=False):
    conditions: tuple[ConditionStatus, ...] = ()
    supported_features: tuple[SupportedFeature, ...] = ()


class AncestorStatus(Struct, frozen=True, omit_defaults=False):
    ancestor_ref: AncestorReference
    controller_name: str
    conditions: tuple[ConditionStatus, ...]


class PolicyStatus(Struct, frozen=True, omit_defaults=False):
    ancestors: tuple[AncestorStatus, ...] = ()


Status = GatewayClassStatus | GatewayStatus | ListenerSetStatus | RouteStatus | PolicyStatus
