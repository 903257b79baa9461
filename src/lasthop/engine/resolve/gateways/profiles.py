"""Merges the GatewayProfiles of a GatewayClass and a Gateway.

For limits, http and backendTLS the stricter value applies, so that a Gateway can only tighten the rules of its class. For
proxy settings the Gateway's value applies. A reference to a missing profile is an error, never "no profile"."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api import profiles
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import ProxyProfile
from lasthop.engine.plan import reasons
from lasthop.engine.plan.limits import Limits, clamped
from lasthop.engine.plan.problem import Problem, invalid_kind, not_found
from lasthop.engine.plan.profile import (
    NOTHING,
    AccessLog,
    Acknowledgement,
    BackendRules,
    HttpRules,
    PlaintextBackends,
    Refusal,
)
from lasthop.engine.plan.upstream import LONGEST_EJECTION, MOST_RETRIES, ConnectRules
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

KIND: Final = "GatewayProfile"
LONGEST_IDLE: Final = 86_400
LONGEST_HANDSHAKE: Final = 300
MAX_ACKNOWLEDGED: Final = 256
"""The CRD's limit."""
T = TypeVar("T")


ResolvedProfile = tuple[Key, profiles.GatewayProfileSpec] | Problem | None
"""A profile, the problem of the parametersRef, or None without a parametersRef."""


@query
def class_profile(g: Graph, gateway_class: Key) -> ResolvedProfile:
    obj = read(g, gateway_class, api.GatewayClass)
    ref = obj.spec.parameters_ref if obj else None
    return _find(g, "parametersRef", ref, ref.namespace) if ref else None


@query
def own_profile(g: Graph, gateway: Key) -> ResolvedProfile:
    """Returns the profile that the Gateway itself refers to, always in its own namespace."""
    obj = read(g, gateway, api.Gateway)
    infrastructure = obj.spec.infrastructure if obj else None
    ref = infrastructure.parameters_ref if infrastructure else None
    return _find(g, "infrastructure.parametersRef", ref, gateway.namespace) if ref else None


def _find(g: Graph, field: str, ref: api.ParametersReference, namespace: str) -> ResolvedProfile:
    if (ref.group, ref.kind) != (profiles.GROUP, KIND):
        kind, use = f"{ref.kind}.{ref.group}" if ref.group else ref.kind, f"a {KIND} of group {profiles.GROUP}, or remove it"
        return invalid_kind(kind, None, use, reasons.INVALID_PARAMETERS).within(field)
    if not namespace:
        message = f"{field}: the reference to {KIND} {ref.name} has no namespace"
        return Problem(reasons.INVALID_PARAMETERS, message, remedy="set it")
    key = Key(KIND, namespace, ref.name)
    obj = read(g, key, profiles.GatewayProfile)
    if obj is None:
        return not_found(reasons.INVALID_PARAMETERS, key, "create it, or remove the reference").within(field)
    return key, obj.spec


def _both(g: Graph, gateway: Key) -> tuple[ResolvedProfile, ResolvedProfile]:
    obj = read(g, gateway, api.Gateway)
    of_class = class_profile(g, Key("GatewayClass", "", obj.spec.gateway_class_name)) if obj else None
    return of_class, own_profile(g, gateway)


@query
def backend_rules(g: Graph, gateway: Key) -> BackendRules:
    """Returns the rules for backends. If a profile is missing, the Gateway is not accepted, and nothing is permitted."""
    of_class, of_gateway = _both(g, gateway)
    if isinstance(of_class, Problem) or isinstance(of_gateway, Problem):
        return NOTHING
    specs = [profile for profile in (of_class, of_gateway) if profile]
    tls = [spec.backend_tls for _, spec in specs]
    return BackendRules(
        waivers=_permitted([t.waivers for t in tls]) or False,
        max_waiver_days=min((t.max_waiver_days for t in tls if t.max_waiver_days is not None), default=None),
        plaintext=_plaintext([t.plaintext_backends for t in tls]),
        # An unknown value might forbid a policy's certificate.
        gateway_certificate_first=any(t.client_certificate not in ("", profiles.POLICY_FIRST) for t in tls),
        pinned_only=_permitted([t.pinned_only for t in tls]) is not False,
        weak=_permitted([t.weak_certificates for t in tls]) is not False,
        min_version=max((t.min_tls_version for t in tls), default=""),
        external_names=_permitted([spec.external_name_services for _, spec in specs]),
        external_hostnames=_permitted([spec.external_hostnames for _, spec in specs]),
        acknowledged=tuple(dict.fromkeys(entry for key, spec in specs for entry in _acknowledged(key, spec.backend_tls))),
        profiles=tuple(dict.fromkeys(key.path for key, _ in specs)),
        denies_waivers=tuple(
            dict.fromkeys(key.path for key, spec in specs if _permitted([spec.backend_tls.waivers]) is False)
        ),
    )


# Most hops read only these parts of the rules, so an edit of another part neither recomputes them nor counts as their cause.


@query
def plaintext_rule(g: Graph, gateway: Key) -> PlaintextBackends:
    return backend_rules(g, gateway).plaintext


@query
def lowest_version(g: Graph, gateway: Key) -> str:
    return backend_rules(g, gateway).min_version


@query
def acknowledgements(g: Graph, gateway: Key) -> tuple[Acknowledgement, ...]:
    return backend_rules(g, gateway).acknowledged


def _acknowledged(key: Key, profile: profiles.BackendTLSProfile) -> Iterator[Acknowledgement]:
    """Yields the valid acknowledgements. Without a reason an entry does not count, even if no admission has refused it."""
    for entry in profile.acknowledged[:MAX_ACKNOWLEDGED]:
        if why := " ".join(entry.reason.split()):
            yield Acknowledgement(entry.kind, entry.namespace, entry.name, entry.port, entry.verification, why, str(key))


@query
def refused_edits(g: Graph, gateway: Key) -> frozenset[Refusal]:
    """Returns the edits that the webhook refuses, by either profile. Unknown values are ignored."""
    specs = (profile[1] for profile in _both(g, gateway) if isinstance(profile, tuple))
    values = (value for spec in specs for value in spec.admission.refuse)
    return frozenset(Refusal(value) for value in values if value in frozenset(Refusal))


@query
def limits(g: Graph, gateway: Key) -> Limits:
    """Returns the limits of a Gateway: the lower ones of both profiles, or the defaults."""
    configured: dict[str, list[int]] = {}
    for profile in _both(g, gateway):
        if isinstance(profile, tuple):
            for name, value in msgspec.structs.asdict(profile[1].limits).items():
                if value is not None:
                    configured.setdefault(name, []).append(value)
    return Limits(**{name: clamped(name, min(values)) for name, values in configured.items()})


@query
def http_rules(g: Graph, gateway: Key) -> HttpRules:
    """Returns the HTTP settings of listeners: the stricter ones of both profiles. Unknown values are ignored."""
    http = [profile[1].http for profile in _both(g, gateway) if isinstance(profile, tuple)]
    default = HttpRules()
    merged = [rules.merge_slashes for rules in http if rules.merge_slashes is not None]
    idle = [rules.idle_seconds for rules in http if rules.idle_seconds is not None]
    handshake = [rules.handshake_seconds for rules in http if rules.handshake_seconds is not None]
    return HttpRules(
        _strictest(profiles.ESCAPED_SLASHES, [rules.escaped_slashes for rules in http]) or default.escaped_slashes,
        any(merged) if merged else default.merge_slashes,
        _strictest(profiles.UNDERSCORES, [rules.underscores_in_headers for rules in http]) or default.underscores_in_headers,
        min(max(1, min(idle, default=default.idle_seconds)), LONGEST_IDLE),
        min(max(1, min(handshake, default=default.handshake_seconds)), LONGEST_HANDSHAKE),
    )


def _strictest(order: tuple[str, ...], values: list[str]) -> str:
    return next((value for value in order if value in values), "")


def _plaintext(values: list[str]) -> PlaintextBackends:
    """Returns the strictest value. An unknown value might forbid something, so it counts as Deny."""
    strictness = tuple(PlaintextBackends)
    modes = (PlaintextBackends(value) if value in strictness else PlaintextBackends.DENY for value in values if value)
    return max(modes, key=strictness.index, default=PlaintextBackends.ALLOW)


def _permitted(words: list[str]) -> bool | None:
    """Returns False if any profile denies it, None if no profile sets it."""
    return None if not any(words) else profiles.DENY not in words and profiles.ALLOW in words


@query
def proxy_profile(g: Graph, gateway: Key) -> ProxyProfile:
    """Returns the proxy settings of a Gateway's profiles."""
    of_class, of_gateway = (
        profile[1].proxy if isinstance(profile, tuple) else ProxyProfile() for profile in _both(g, gateway)
    )
    return ProxyProfile(
        replicas=_first(of_gateway.replicas, of_class.replicas),
        resources=_first(of_gateway.resources, of_class.resources),
        service=_first(of_gateway.service, of_class.service),
        pod=_first(of_gateway.pod, of_class.pod),
        autoscaling=_first(of_gateway.autoscaling, of_class.autoscaling),
        disruption_budget=_first(of_gateway.disruption_budget, of_class.disruption_budget),
        drain_seconds=_first(of_gateway.drain_seconds, of_class.drain_seconds),
        image=of_gateway.image or of_class.image,
        access_log=of_gateway.access_log or of_class.access_log,
        connect_retries=_first(of_gateway.connect_retries, of_class.connect_retries),
        ejection_seconds=_first(of_gateway.ejection_seconds, of_class.ejection_seconds),
    )


def _first(of_gateway: T | None, of_class: T | None) -> T | None:
    return of_class if of_gateway is None else of_gateway


@query
def proxy_settings(g: Graph, gateway: Key) -> profiles.ProxySettings:
    fields = msgspec.structs.asdict(proxy_profile(g, gateway))
    proxy_fields = {name: fields[name] for name in profiles.ProxySettings.__struct_fields__}
    return profiles.ProxySettings(**{name: value for name, value in proxy_fields.items() if value not in (None, "")})


@query
def access_log_mode(g: Graph, gateway: Key) -> AccessLog:
    """Returns the requests that a Gateway's proxies log. An unknown value is ignored."""
    configured = proxy_profile(g, gateway).access_log
    return AccessLog(configured) if configured in frozenset(AccessLog) else settings(g).access_log


@query
def connect_rules(g: Graph, gateway: Key) -> ConnectRules:
    """Returns the rules of a Gateway's proxies for endpoints that refuse connections."""
    profile, default = proxy_profile(g, gateway), ConnectRules()
    retries = default.retries if profile.connect_retries is None else profile.connect_retries
    seconds = default.ejection_seconds if profile.ejection_seconds is None else profile.ejection_seconds
    return ConnectRules(min(max(0, retries), MOST_RETRIES), min(max(0, seconds), LONGEST_EJECTION))
