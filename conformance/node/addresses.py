"""Assigns addresses from one range to Services of type LoadBalancer."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from conformance.api import Object
from conformance.network import LOAD_BALANCER_PREFIX, LOAD_BALANCER_RANGE

_RANGE = ipaddress.ip_network(LOAD_BALANCER_RANGE)


class Addresses:
    def __init__(self) -> None:
        self._held: dict[str, str] = {}  # uid of a Service -> its address
        self._count = 0

    def assign(self, services: Iterable[Object]) -> list[tuple[Object, str]]:
        """Returns the addresses of all Services that get one now. A Service that requests an address of another range, or one
        in use by another Service, gets none: it stays pending, as with load balancers that announce a pool."""
        balanced = {service["metadata"]["uid"]: service for service in services if _ours(service)}
        self._held = {uid: address for uid, address in self._held.items() if uid in balanced}
        assignments = []
        for uid, service in balanced.items():
            if uid not in self._held and (address := self._choose(service["spec"].get("loadBalancerIP"))):
                self._held[uid] = address
                assignments.append((service, address))
        return assignments

    def _choose(self, wanted: str | None) -> str | None:
        if wanted:
            return wanted if ipaddress.ip_address(wanted) in _RANGE and wanted not in self._held.values() else None
        self._count += 1  # never used again, so that no test meets another's address
        return f"{LOAD_BALANCER_PREFIX}.{self._count >> 8}.{self._count & 255}"


def _ours(service: Object) -> bool:
    # A class names another load balancer.
    return service["spec"]["type"] == "LoadBalancer" and not service["spec"].get("loadBalancerClass")
