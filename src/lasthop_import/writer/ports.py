"""Finds Gateways that listen on the same port. In a cluster each has its own address; on a host they share one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from lasthop.base.api.documents import Json
from lasthop_import.notes import Category, Note
from lasthop_import.writer.objects import Written


def shared_ports(objects: Iterable[Written]) -> Iterator[Note]:
    """Yields a note for each Gateway except the first of a port. On one host, it gets no traffic until this is resolved."""
    owners: dict[tuple[int, str], Written] = {}
    noted: set[tuple[str, str]] = set()
    for gateway, port, address in _listened(objects):
        owner = owners.setdefault((port, address), gateway)
        if owner.key != gateway.key and gateway.key[::2] not in noted:
            noted.add(gateway.key[::2])
            text = f"port {port} is also one of {owner.name}'s: on one host only one of them can have it"
            remedy = "For lasthop run, give each a separate address in spec.addresses. In a cluster each has one."
            yield Note(Category.TODO, "port-shared", text, remedy=remedy, target=gateway.name)


def _listened(objects: Iterable[Written]) -> Iterator[tuple[Written, int, str]]:
    """Yields the Gateway, port and address of all listeners, first of Gateways, then of ListenerSets."""
    written = sorted(objects, key=lambda output: output.key)
    gateways = {gateway.key[::2]: gateway for gateway in written if gateway.kind == "Gateway"}
    sets = [
        (gateways.get(_parent(listener_set)), listener_set) for listener_set in written if listener_set.kind == "ListenerSet"
    ]
    for gateway, owner in (*((gateway, gateway) for gateway in gateways.values()), *sets):
        if gateway is not None:
            ports = sorted({listener["port"] for listener in owner.document["spec"]["listeners"]})
            yield from ((gateway, *place) for place in product(ports, _addresses(gateway.document)))


def _parent(listener_set: Written) -> tuple[str, str]:
    ref = listener_set.document["spec"]["parentRef"]
    return ref.get("namespace", listener_set.key[0]), ref["name"]


def _addresses(gateway: Json) -> list[str]:
    return [address.get("value", "") for address in gateway["spec"].get("addresses") or ()] or [""]
