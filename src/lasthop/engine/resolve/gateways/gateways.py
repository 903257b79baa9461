"""Gateways: their class, addresses, client certificate for backends, and conflicts over ports of a shared host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lasthop.base.api import gateway as api
from lasthop.base.api.bundle import KNOWN, known, supported_features
from lasthop.base.api.gateway import GatewayClass
from lasthop.base.api.kinds import CONTROLLER_NAME
from lasthop.base.api.meta import Key
from lasthop.engine.plan import reasons
from lasthop.engine.plan.condition import Condition, failed, true
from lasthop.engine.plan.infrastructure import CLUSTER, RequestedAddresses
from lasthop.engine.plan.listener import GatewayPlan
from lasthop.engine.plan.problem import Problem, invalid_kind, listeners_not_valid, ref_not_permitted
from lasthop.engine.resolve.backends.grants import permitted
from lasthop.engine.resolve.gateways.allowed_listeners import unusable_rule
from lasthop.engine.resolve.gateways.listeners import listeners
from lasthop.engine.resolve.gateways.profiles import class_profile, own_profile
from lasthop.engine.resolve.settings import CRD_VERSIONS, Settings, settings
from lasthop.engine.resolve.trust.certificates import key_pair, refused_pair
from lasthop.engine.store.graph import Graph, query
from lasthop.engine.store.sources import Entry, Index
from lasthop.engine.store.stages import indexer
from lasthop.engine.store.store import OBJECTS, read


@query
def gateway_class(g: Graph, key: Key) -> Condition | None:
    """Returns whether the class is accepted; None if it belongs to another controller or does not exist."""
    obj = read(g, key, GatewayClass)
    if obj is None or obj.spec.controller_name != CONTROLLER_NAME:
        return None
    profile = class_profile(g, key)
    return failed(reasons.ACCEPTED, profile) if isinstance(profile, Problem) else true(reasons.ACCEPTED)


def supported_version(g: Graph) -> Condition:
    """Returns whether Lasthop knows the releases of the installed CRDs. It serves the known fields of others."""
    versions = CRD_VERSIONS.of(g) or ()
    unread = [f"{crd} cannot be read: {version.unread}" for crd, version in versions if version.unread]
    if unread:
        remedy = f"install CRDs of {KNOWN}"
        return failed(reasons.SUPPORTED_VERSION, Problem(reasons.NOT_SERVED, "; ".join(unread), remedy=remedy))
    releases = [(crd, version.release) for crd, version in versions]
    unknown = [f"{crd} is of {release or 'an unknown release'}" for crd, release in releases if not known(release)]
    if not unknown:
        return true(reasons.SUPPORTED_VERSION)
    message = f"{'; '.join(unknown)}. Lasthop knows {KNOWN} and serves the known fields of others"
    return failed(reasons.SUPPORTED_VERSION, Problem(reasons.UNSUPPORTED_VERSION, message, remedy="install one of those"))


def class_features(g: Graph) -> tuple[str, ...]:
    """Returns the supported features, by their names in the release of the installed CRDs."""
    return supported_features(CRD_VERSIONS.of(g) or ())


WILDCARDS = frozenset({"0.0.0.0", "::"})


class Addresses(msgspec.Struct, frozen=True):
    bound: tuple[str, ...]
    """Addresses that the proxy binds."""
    requested: RequestedAddresses = RequestedAddresses()
    problem: Problem | None = None
    """Why the Gateway cannot be accepted."""


def addresses(g: Graph, obj: api.Gateway) -> Addresses:
    current_settings, outside, inside, unassigned = settings(g), list[str](), list[str](), list[str]()
    for number, address in enumerate(obj.spec.addresses):
        where = f"addresses[{number}]"
        if address.type != "IPAddress":
            message = f"{where}: type {address.type} is not supported"
            return Addresses((), problem=_unsupported(message, "use IPAddress").at(f"spec.{where}"))
        try:
            value = str(ipaddress.ip_address(address.value)) if address.value else ""
        except ValueError:
            message = f"{where}: {address.value} is not an IP address"
            return Addresses((), problem=_unsupported(message, "correct it").at(f"spec.{where}"))
        if address.routability == "":
            outside.append(value or (current_settings.default_address if current_settings.host_network else ""))
        elif address.routability != CLUSTER:
            unassigned.append(f"{where}: routability {address.routability} is not known here")
        elif current_settings.host_network and value and not ipaddress.ip_address(value).is_loopback:
            unassigned.append(f"{where}: {value} can be reached from other hosts, which routability {CLUSTER} forbids")
        else:
            inside.append(value or (_loopback(current_settings) if current_settings.host_network else ""))
    requested = RequestedAddresses(_unique(outside), _unique(inside), tuple(unassigned))
    if unassigned and not outside and not inside:
        return Addresses((), requested, _unsupported("; ".join(unassigned), "correct or remove it").at("spec.addresses"))
    return Addresses(_bound(current_settings, requested), requested)


def _bound(current_settings: Settings, requested: RequestedAddresses) -> tuple[str, ...]:
    """Returns the addresses to bind. In a cluster, the requested addresses belong to Services, and the proxy binds all
    addresses of its Pod."""
    all_requested = requested.outside + requested.inside
    if not current_settings.host_network or not all_requested:
        return (current_settings.default_address,)
    covered = {ipaddress.ip_address(address).version for address in all_requested if address in WILDCARDS}
    # A wildcard address includes the loopback address, which could not be bound again.
    return _unique(
        address
        for address in all_requested
        if address in requested.outside or ipaddress.ip_address(address).version not in covered
    )


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _loopback(current_settings: Settings) -> str:
    return "::1" if ":" in current_settings.default_address else "127.0.0.1"


def _unsupported(message: str, remedy: str = "") -> Problem:
    return Problem(reasons.UNSUPPORTED_ADDRESS, message, remedy=remedy)


CLIENT_CERTIFICATE: Final = "spec.tls.backend.clientCertificateRef"


@query
def age(g: Graph, key: Key) -> tuple[str, str]:
    """Returns the age of a Gateway or a ListenerSet."""
    obj = OBJECTS.of(g, key)
    return obj.age if obj else ("", key.path)


@query
def gateway(g: Graph, key: Key) -> GatewayPlan | None:
    """Returns the plan of a Gateway; None if another controller serves it."""
    obj = read(g, key, api.Gateway)
    if obj is None:
        return None
    class_accepted = gateway_class(g, Key("GatewayClass", "", obj.spec.gateway_class_name))
    if class_accepted is None:
        return None
    merged = listeners(g, key)
    gateway_addresses = addresses(g, obj)
    profile = own_profile(g, key)
    if class_accepted.problem:
        accepted = failed(reasons.ACCEPTED, class_accepted.problem.within("its GatewayClass is not accepted"))
    elif isinstance(profile, Problem):
        accepted = failed(reasons.ACCEPTED, profile)
    elif gateway_addresses.problem:
        accepted = failed(reasons.ACCEPTED, gateway_addresses.problem)
    else:
        # ListenerSets report their own errors. While one of them can be served, invalid listeners of the Gateway do not close
        # theirs.
        own_listeners = (listener for listener in merged if listener.owner == key)
        invalid_names = [listener.name for listener in own_listeners if not all(c.status for c in listener.conditions)]
        invalid = listeners_not_valid(invalid_names)
        if merged and not any(listener.served for listener in merged):
            accepted = failed(reasons.ACCEPTED, invalid)
        else:
            unusable, scope = unusable_rule(g, key), without_effect("defaultScope", obj.spec.default_scope)
            message = "; ".join(filter(None, (invalid.text, str(unusable or ""), scope)))
            accepted = true(reasons.ACCEPTED, message, invalid.reason if invalid_names else "")
    return GatewayPlan(key, gateway_addresses.bound, merged, accepted, gateway_addresses.requested)


@query
def gateway_accepted(g: Graph, key: Key) -> Condition | None:
    """Returns only the Accepted condition, so that its readers do not run again when a listener changes. None if another
    controller serves the Gateway."""
    plan = gateway(g, key)
    return plan.accepted if plan else None


def without_effect(field: str, scope: str) -> str:
    """Describes a Gateway's `defaultScope` or a route's `useDefaultGateways` (GEP-3793), which are not served, if set."""
    if scope in ("", "None"):
        return ""
    return f"{field} {scope} has no effect: default Gateways are not supported, so each route must name its own"


@query
def client_certificate(g: Graph, key: Key) -> Key | Problem | None:
    """Returns the Secret with the client certificate for backends (`spec.tls.backend.clientCertificateRef`), or why it cannot
    be used."""
    obj = read(g, key, api.Gateway)
    backend = obj.spec.tls.backend if obj and obj.spec.tls else None
    ref = backend.client_certificate_ref if backend else None
    if ref is None:
        return None
    field = CLIENT_CERTIFICATE
    if (ref.group, ref.kind) != ("", "Secret"):
        return invalid_kind(ref.kind, ref.group, "a Secret", reasons.INVALID_CLIENT_CERTIFICATE_REF).at(field)
    secret = Key("Secret", ref.namespace or key.namespace, ref.name)
    if not permitted(g, api.GROUP, key, "", secret):
        return ref_not_permitted(key, secret).at(field)
    pair = key_pair(g, secret)
    problem = pair if isinstance(pair, Problem) else refused_pair(g, key, secret)
    return problem.with_reason(reasons.INVALID_CLIENT_CERTIFICATE_REF).at(field) if problem else secret


SOCKETS = Index[int, str, tuple[tuple[str, str], Key, tuple[str, ...]]]("socket")
"""(age, Gateway, addresses) by port and transport, for Gateways that share a host."""


@indexer("Gateway", keep_on_crash=True)
def index_sockets(g: Graph, key: Key) -> Iterator[Entry]:
    plan = gateway(g, key)
    if plan is None or not plan.accepted.status or not settings(g).host_network:
        return
    # A port that only ListenerSets use has the age of the oldest of them, or a new ListenerSet could take it from another
    # Gateway.
    claims: dict[tuple[int, str], tuple[str, str]] = {}
    for listener in plan.listeners:
        if listener.served:
            port, since = (listener.port, listener.transport), max(age(g, key), age(g, listener.owner))
            claims[port] = min(since, claims.get(port, since))
    for port, since in claims.items():
        yield SOCKETS.entry(port, (since, key, plan.addresses))


@query
def port_holder(g: Graph, key: Key, port: int, transport: str) -> Key | None:
    """Returns an older Gateway that uses the same address and port on a shared host."""
    sockets = sorted(SOCKETS.of(g, port, transport))
    own_age, own_addresses = next(
        ((since, addresses) for since, owner, addresses in sockets if owner == key), (age(g, key), ())
    )
    older = [(owner, addresses) for since, owner, addresses in sockets if (since, owner) < (own_age, key)]
    own_wildcards = WILDCARDS.intersection(own_addresses)
    return next((owner for owner, addresses in older if own_wildcards or {*own_addresses, *WILDCARDS} & {*addresses}), None)
