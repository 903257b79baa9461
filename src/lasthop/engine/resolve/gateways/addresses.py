"""The addresses that a Gateway asks for, each with the scope from which it is to be reached (GEP-5093), and which can be had.

An address of another scope is never used instead. In a cluster, `Cluster` is a ClusterIP of its own. On a host there is no
network of Services; what is inside is that host, so it is a loopback address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

import msgspec

from lasthop.base.api import gateway as api
from lasthop.engine.plan import reasons
from lasthop.engine.plan.infrastructure import CLUSTER, RequestedAddresses
from lasthop.engine.plan.problem import Problem
from lasthop.engine.resolve.settings import Settings, settings
from lasthop.engine.store.graph import Graph

WILDCARDS = frozenset({"0.0.0.0", "::"})


class Addresses(msgspec.Struct, frozen=True):
    bound: tuple[str, ...]
    """What the proxy binds."""
    requested: RequestedAddresses = RequestedAddresses()
    problem: Problem | None = None
    """Why the Gateway cannot be accepted."""


def addresses(g: Graph, obj: api.Gateway) -> Addresses:
    here, outside, inside, unassigned = settings(g), list[str](), list[str](), list[str]()
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
            outside.append(value or (here.default_address if here.host_network else ""))
        elif address.routability != CLUSTER:
            unassigned.append(f"{where}: routability {address.routability} is not known here")
        elif here.host_network and value and not ipaddress.ip_address(value).is_loopback:
            unassigned.append(f"{where}: {value} can be reached from other hosts, which routability {CLUSTER} rules out")
        else:
            inside.append(value or (_loopback(here) if here.host_network else ""))
    requested = RequestedAddresses(_each(outside), _each(inside), tuple(unassigned))
    if unassigned and not outside and not inside:
        return Addresses((), requested, _unsupported("; ".join(unassigned), "correct or remove it").at("spec.addresses"))
    return Addresses(_bound(here, requested), requested)


def _bound(here: Settings, requested: RequestedAddresses) -> tuple[str, ...]:
    """Returns the addresses to bind. In a pod they belong to the Services in front of it; the proxy binds whatever the pod
    has."""
    wanted = requested.outside + requested.inside
    if not here.host_network or not wanted:
        return (here.default_address,)
    covered = {ipaddress.ip_address(each).version for each in wanted if each in WILDCARDS}
    # What is bound for all addresses is bound for the loopback one, and could not be bound again.
    return _each(a for a in wanted if a in requested.outside or ipaddress.ip_address(a).version not in covered)


def _each(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _loopback(here: Settings) -> str:
    return "::1" if ":" in here.default_address else "127.0.0.1"


def _unsupported(message: str, remedy: str = "") -> Problem:
    return Problem(reasons.UNSUPPORTED_ADDRESS, message, remedy=remedy)
