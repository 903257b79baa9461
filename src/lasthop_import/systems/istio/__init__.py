"""Imports from Istio: Gateways, VirtualServices, DestinationRules and ServiceEntries, as a gateway's proxy reads them.

Follows the source of istio/istio at 86c9f01f and istio/api at b8f8791d. Sidecars are out of scope.

    kinds.py               kinds, hosts, visibility (exportTo), settings of the mesh
    gateways.py            servers as listeners
    destination_rules.py   selection of the rule for a host and port
    destinations.py        hosts of destinations: Services and ServiceEntries
    backend_tls.py         verification of backends
    virtual_services.py    routes as rules
    delegates.py           rules of delegate VirtualServices
    hops.py                destinations as hops
    matches.py             matches of routes
    filters.py             filters of routes
"""

from __future__ import annotations

from typing import Final

from lasthop_import.documents import Document
from lasthop_import.inputs import Inputs
from lasthop_import.model import Imported
from lasthop_import.order import order_notes
from lasthop_import.settings import Flag, ImportSettings, System
from lasthop_import.systems.istio.destination_rules import read_rules
from lasthop_import.systems.istio.destinations import read_destinations
from lasthop_import.systems.istio.gateways import read_gateways
from lasthop_import.systems.istio.hops import HopReader
from lasthop_import.systems.istio.kinds import (
    GROUPS,
    LOST,
    OLD_GROUPS,
    OLD_RESTRICTIONS,
    OUTSIDE_MESH,
    READ_KINDS,
    list_others,
    read_mesh,
)
from lasthop_import.systems.istio.virtual_services import VirtualServiceReader


def read(inputs: Inputs, settings: ImportSettings) -> Imported:
    mesh = read_mesh(inputs, settings)
    gateways = read_gateways(inputs, settings, mesh)
    rules = read_rules(inputs)
    destinations = read_destinations(inputs)
    hops = HopReader(inputs, mesh, rules, destinations)
    reader = VirtualServiceReader(inputs, mesh, gateways, hops)
    reader.read()
    list_others(inputs, mesh)
    rules.note_unused(inputs)
    destinations.skip_unused()
    inputs.notes += order_notes(reader.rules)
    return Imported(
        tuple((*gateways.listeners, *reader.listeners)),
        tuple((*gateways.redirects, *reader.rules)),
        objects=tuple(hops.services.values()),
    )


def _claims(document: Document) -> bool:
    return document.group in GROUPS


SYSTEM: Final = System(
    name="istio",
    gateway_controller="istio.io/gateway-controller",
    restricting=frozenset((*LOST, *OLD_RESTRICTIONS)),
    other_groups=OLD_GROUPS,
    title="Istio (gateways, not sidecars)",
    kinds=READ_KINDS,
    read=read,
    claims=_claims,
    annotations=("networking.istio.io/", "proxy.istio.io/"),
    flags=(
        Flag("--istio-version", "The version, as 1.20: before 1.21, SIMPLE without a CA verified nothing.", "VERSION"),
        Flag("--istio-namespace", "The root namespace of the mesh.", "NS", default="istio-system"),
        Flag("--istio-gateway-namespace", "Where the gateways' Pods run.  [default: that of their Service]", "NS"),
        Flag(OUTSIDE_MESH, "A namespace whose Pods have no proxy of the mesh, or all.", "NS", multiple=True),
    ),
)
