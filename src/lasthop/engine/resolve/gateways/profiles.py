"""GatewayProfiles: what the profile of a class and that of a Gateway come to together.

Of limits, of http and of what is permitted towards backends the stricter word holds, so that a Gateway may only tighten what
its class says; of how proxies run the Gateway's own word holds. A reference that leads nowhere is an error, never "no
profile".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api import profiles
from lasthop.base.api.meta import Key
from lasthop.base.api.profiles import ProxyProfile
from lasthop.engine.plan import reasons
from lasthop.engine.plan.connecting import LONGEST_EJECTION, MOST_RETRIES, ConnectRules
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
from lasthop.engine.resolve.settings import settings
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.store import read

KIND: Final = "GatewayProfile"
LONGEST_IDLE: Final = 86_400
LONGEST_HANDSHAKE: Final = 300
MAX_ACKNOWLEDGED: Final = 256
"""As many as the CRD admits."""
T = TypeVar("T")


Found = tuple[Key, profiles.GatewayProfileSpec] | Problem | None
"""A profile, why the parametersRef leads to none, or nothing where there is no such reference."""


@query
def class_profile(g: Graph, gateway_class: Key) -> Found:
    obj = read(g, gateway_class, api.GatewayClass)
    ref = obj.spec.parameters_ref if obj else None
    return _find(g, "parametersRef", ref, ref.namespace) if ref else None


@query
def own_profile(g: Graph, gateway: Key) -> Found:
    """Returns the profile of the Gateway itself, always from its own namespace."""
    obj = read(g, gateway, api.Gateway)
    infrastructure = obj.spec.infrastructure if obj else None
    ref = infrastructure.parameters_ref if infrastructure else None
    return _find(g, "infrastructure.parametersRef", ref, gateway.namespace) if ref else None


def _find(g: Graph, field: str, ref: api.ParametersReference, namespace: str) -> Found:
    if (ref.group, ref.kind) != (profiles.GROUP, KIND):
        kind, use = f"{ref.kind}.{ref.group}" if ref.group else ref.kind, f"a {KIND} of group {profiles.GROUP}, or remove it"
        return invalid_kind(kind, None, use, reasons.INVALID_PARAMETERS).within(field)
    if not namespace:
        message = f"{field}: {KIND} {ref.name} needs its namespace"
        return Problem(reasons.INVALID_PARAMETERS, message, remedy="give one")
    key = Key(KIND, namespace, ref.name)
    obj = read(g, key, profiles.GatewayProfile)
    if obj is None:
        return not_found(reasons.INVALID_PARAMETERS, key, "create it, or remove the reference").within(field)
    return key, obj.spec


def _both(g: Graph, gateway: Key) -> tuple[Found, Found]:
    obj = read(g, gateway, api.Gateway)
    of_class = class_profile(g, Key("GatewayClass", "", obj.spec.gateway_class_name)) if obj else None
    return of_class, own_profile(g, gateway)


@query
def backend_rules(g: Graph, gateway: Key) -> BackendRules:
    """Returns what is permitted. Where a profile cannot be found the Gateway is not accepted, and nothing is permitted."""
    of_class, own = _both(g, gateway)
    if isinstance(of_class, Problem) or isinstance(own, Problem):
        return NOTHING
    said = [found for found in (of_class, own) if found]
    tls = [spec.backend_tls for _, spec in said]
    return BackendRules(
        waivers=_permitted([t.waivers for t in tls]) or False,
        max_waiver_days=min((t.max_waiver_days for t in tls if t.max_waiver_days is not None), default=None),
        plaintext=_plaintext([t.plaintext_backends for t in tls]),
        # A word that is not known might keep a policy's certificate from being shown.
        gateway_certificate_first=any(t.client_certificate not in ("", profiles.POLICY_FIRST) for t in tls),
        pinned_only=_permitted([t.pinned_only for t in tls]) is not False,
        weak=_permitted([t.weak_certificates for t in tls]) is not False,
        min_version=max((t.min_tls_version for t in tls), default=""),
        external_names=_permitted([spec.external_name_services for _, spec in said]),
        external_hostnames=_permitted([spec.external_hostnames for _, spec in said]),
        acknowledged=tuple(dict.fromkeys(entry for key, spec in said for entry in _acknowledged(key, spec.backend_tls))),
        profiles=tuple(dict.fromkeys(key.path for key, _ in said)),
        denies_waivers=tuple(dict.fromkeys(key.path for key, spec in said if _permitted([spec.backend_tls.waivers]) is False)),
    )


def _acknowledged(key: Key, said: profiles.BackendTLSProfile) -> Iterator[Acknowledgement]:
    """Yields the acknowledgements that count. Without a reason it is not one: an admission that does not insist must not make
    it so."""
    for each in said.acknowledged[:MAX_ACKNOWLEDGED]:
        if why := " ".join(each.reason.split()):
            yield Acknowledgement(each.kind, each.namespace, each.name, each.port, each.verification, why, str(key))


@query
def refused_edits(g: Graph, gateway: Key) -> frozenset[Refusal]:
    """Returns what the webhook refuses: what either profile says. A word that is not known refuses nothing."""
    said = (word for found in _both(g, gateway) if isinstance(found, tuple) for word in found[1].admission.refuse)
    return frozenset(Refusal(word) for word in said if word in frozenset(Refusal))


@query
def limits(g: Graph, gateway: Key) -> Limits:
    """Returns how much its routes and policies may ask for: the lower of both profiles' limits, or the default."""
    said: dict[str, list[int]] = {}
    for found in _both(g, gateway):
        if isinstance(found, tuple):
            for name, value in msgspec.structs.asdict(found[1].limits).items():
                if value is not None:
                    said.setdefault(name, []).append(value)
    return Limits(**{name: clamped(name, min(values)) for name, values in said.items()})


@query
def http_rules(g: Graph, gateway: Key) -> HttpRules:
    """Returns how requests of clients are read: the stricter of both profiles' settings. Unknown values are ignored."""
    said = [found[1].http for found in _both(g, gateway) if isinstance(found, tuple)]
    default = HttpRules()
    merged = [each.merge_slashes for each in said if each.merge_slashes is not None]
    idle = [each.idle_seconds for each in said if each.idle_seconds is not None]
    handshake = [each.handshake_seconds for each in said if each.handshake_seconds is not None]
    return HttpRules(
        _strictest(profiles.ESCAPED_SLASHES, [each.escaped_slashes for each in said]) or default.escaped_slashes,
        any(merged) if merged else default.merge_slashes,
        _strictest(profiles.UNDERSCORES, [each.underscores_in_headers for each in said]) or default.underscores_in_headers,
        min(max(1, min(idle, default=default.idle_seconds)), LONGEST_IDLE),
        min(max(1, min(handshake, default=default.handshake_seconds)), LONGEST_HANDSHAKE),
    )


def _strictest(words: tuple[str, ...], said: list[str]) -> str:
    return next((word for word in words if word in said), "")


def _plaintext(words: list[str]) -> PlaintextBackends:
    """Returns the strictest word. One that is not known might forbid something, so it counts as Deny."""
    strictness = tuple(PlaintextBackends)
    said = (PlaintextBackends(word) if word in strictness else PlaintextBackends.DENY for word in words if word)
    return max(said, key=strictness.index, default=PlaintextBackends.ALLOW)


def _permitted(words: list[str]) -> bool | None:
    """Returns False if any profile denies it, None if no profile sets it."""
    return None if not any(words) else profiles.DENY not in words and profiles.ALLOW in words


@query
def proxy_profile(g: Graph, gateway: Key) -> ProxyProfile:
    """Returns how its proxies are to run, as far as a profile sets it."""
    of_class, own = (found[1].proxy if isinstance(found, tuple) else ProxyProfile() for found in _both(g, gateway))
    return ProxyProfile(
        replicas=_first(own.replicas, of_class.replicas),
        resources=_first(own.resources, of_class.resources),
        service=_first(own.service, of_class.service),
        pod=_first(own.pod, of_class.pod),
        autoscaling=_first(own.autoscaling, of_class.autoscaling),
        disruption_budget=_first(own.disruption_budget, of_class.disruption_budget),
        drain_seconds=_first(own.drain_seconds, of_class.drain_seconds),
        image=own.image or of_class.image,
        access_log=own.access_log or of_class.access_log,
        connect_retries=_first(own.connect_retries, of_class.connect_retries),
        ejection_seconds=_first(own.ejection_seconds, of_class.ejection_seconds),
    )


def _first(own: T | None, of_class: T | None) -> T | None:
    return of_class if own is None else own


@query
def proxy_settings(g: Graph, gateway: Key) -> profiles.ProxySettings:
    said = msgspec.structs.asdict(proxy_profile(g, gateway))
    known = {name: said[name] for name in profiles.ProxySettings.__struct_fields__}
    return profiles.ProxySettings(**{name: value for name, value in known.items() if value not in (None, "")})


@query
def access_log_mode(g: Graph, gateway: Key) -> AccessLog:
    """Returns which requests its proxies log. A value that is not known is ignored."""
    said = proxy_profile(g, gateway).access_log
    return AccessLog(said) if said in frozenset(AccessLog) else settings(g).access_log


@query
def connect_rules(g: Graph, gateway: Key) -> ConnectRules:
    """Returns what its proxies do about endpoints that cannot be connected to."""
    said, default = proxy_profile(g, gateway), ConnectRules()
    retries = default.retries if said.connect_retries is None else said.connect_retries
    seconds = default.ejection_seconds if said.ejection_seconds is None else said.ejection_seconds
    return ConnectRules(min(max(0, retries), MOST_RETRIES), min(max(0, seconds), LONGEST_EJECTION))
