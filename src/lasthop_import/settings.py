"""The settings of one import, and the interface of a system's importer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from lasthop.base.api.kinds import GATEWAY_API, Kind
from lasthop_import.documents import Document
from lasthop_import.model import Imported, ObjectName

if TYPE_CHECKING:
    from lasthop_import.inputs import Inputs

DAY = 86400.0
Progress = Callable[[str, int, int], None]
"""Gets the name of a step, how much of it is done, and how much there is."""


class ImportSettings(msgspec.Struct, frozen=True):
    now: float
    gateway: ObjectName = ObjectName("gateways", "imported")
    gateway_class: str = "lasthop"
    parent: ObjectName | None = None
    """An existing Gateway to attach routes to; then none is written."""
    parent_listener: str = ""
    ingress_classes: tuple[str, ...] = ()
    """Empty: those of the IngressClass objects, or all."""
    domain: str = ""
    default_certificate: ObjectName | None = None
    ca_files: Mapping[str, bytes] = {}
    """By the path in the old proxy."""
    unverified: str = "todo"
    """Or waive."""
    chain_only: str = "todo"
    """Or strict, or waive."""
    reason: str = ""
    """Of waivers by these two."""
    waiver_days: int = 90
    allow_waivers: bool = False
    split_conflicts: bool = False
    with_secrets: bool = False
    experimental: bool = True
    accepted: tuple[str, ...] = ()
    """Categories or reasons of losses that are accepted for all routes."""
    in_cluster: bool = False
    """The input is a cluster: what is in it need not be written again."""
    only: tuple[str, ...] = ()
    """`namespace/name` of the routes to import, or `namespace`; empty: all. Objects that are no routes are always read."""
    flags: Mapping[str, Any] = {}
    """The systems' own options: by name, without the dashes."""


class Flag(msgspec.Struct, frozen=True):
    """An option of one system, as `--traefik-entrypoint NAME=PORT`."""

    name: str
    """With the dashes."""
    help: str
    metavar: str | None = None
    """None: it takes no value, and arrives as a bool."""
    multiple: bool = False
    """It arrives as a tuple."""
    file: bool = False
    """The value is a path; what arrives is the content as bytes, or b""."""
    default: str = ""

    @property
    def key(self) -> str:
        return self.name.lstrip("-")


class System(msgspec.Struct, frozen=True):
    name: str
    """As it is typed: `ingress-nginx`."""
    title: str
    kinds: tuple[Kind, ...]
    """The kinds that it reads besides Services, EndpointSlices, ConfigMaps, Secrets and IngressClasses."""
    read: Callable[[Inputs, ImportSettings], Imported]
    claims: Callable[[Document], bool]
    """For `auto`: whether an object, of one of the kinds, is of this system."""
    flags: tuple[Flag, ...] = ()
    gateway_controller: str = ""
    """The controllerName of its GatewayClasses, if it serves Gateway API, which its importer does not read."""
    controllers: tuple[str, ...] = ()
    """Controllers in IngressClasses; their Ingresses are always its own."""
    restricting: frozenset[str] = frozenset()
    """Kinds that may restrict access. Their routes are closed if the version, or a field of the spec, is not known."""
    other_groups: tuple[str, ...] = ()
    """API groups of the system that are not read."""
    annotations: tuple[str, ...] = ()
    """Prefixes of its annotations."""

    def prefixes(self, settings: ImportSettings) -> tuple[str, ...]:
        """Returns the prefixes of its annotations, with the one that an option names."""
        named = (settings.flags.get(flag.key) for flag in self.flags if flag.metavar == "PREFIX")
        return (*self.annotations, *(f"{each}/" for each in named if each))

    @property
    def groups(self) -> frozenset[str]:
        """API groups that are this system's alone: what is lost of them is lost configuration."""
        own = {kind.group for kind in self.kinds} - {GATEWAY_API, "networking.k8s.io", ""}
        return frozenset((*own, *self.other_groups))
