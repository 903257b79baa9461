"""Defines the settings of an import, and the interface of a system's importer."""

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
"""Receives the name of a step, the number of completed items and the number of all items."""


class ImportSettings(msgspec.Struct, frozen=True):
    now: float
    gateway: ObjectName = ObjectName("gateways", "imported")
    gateway_class: str = "lasthop"
    parent: ObjectName | None = None
    """An existing Gateway to attach routes to; then no Gateway is written."""
    parent_listener: str = ""
    ingress_classes: tuple[str, ...] = ()
    """Empty: the classes of the IngressClass objects, or all."""
    domain: str = ""
    default_certificate: ObjectName | None = None
    ca_files: Mapping[str, bytes] = {}
    """Contents by the path in the old proxy."""
    unverified: str = "todo"
    """todo or waive."""
    chain_only: str = "todo"
    """todo, strict or waive."""
    reason: str = ""
    """The reason of waivers by `unverified` and `chain_only`."""
    waiver_days: int = 90
    allow_waivers: bool = False
    split_conflicts: bool = False
    with_secrets: bool = False
    experimental: bool = True
    accepted: tuple[str, ...] = ()
    """Categories or reasons of losses that are accepted for all routes."""
    in_cluster: bool = False
    """The input is a cluster: its objects need not be written again."""
    only: tuple[str, ...] = ()
    """`namespace/name` of the routes to import, or `namespace`; empty: all. Objects of other kinds are always read."""
    flags: Mapping[str, Any] = {}
    """The systems' own options by name, without the dashes."""


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
    """The value is a path; the importer receives the content as bytes, or b""."""
    default: str = ""

    @property
    def key(self) -> str:
        return self.name.lstrip("-")


class System(msgspec.Struct, frozen=True):
    name: str
    """The name on the command line: `ingress-nginx`."""
    title: str
    kinds: tuple[Kind, ...]
    """The kinds that it reads besides Services, EndpointSlices, ConfigMaps, Secrets and IngressClasses."""
    read: Callable[[Inputs, ImportSettings], Imported]
    claims: Callable[[Document], bool]
    """For `auto`: returns whether an object of one of the kinds belongs to this system."""
    flags: tuple[Flag, ...] = ()
    gateway_controller: str = ""
    """The controllerName of its GatewayClasses, if the system serves Gateway API and its importer does not read that."""
    controllers: tuple[str, ...] = ()
    """Controllers in IngressClasses; their Ingresses always belong to the system."""
    restricting: frozenset[str] = frozenset()
    """Kinds that may restrict access. Their routes are closed if the version, or a field of the spec, is not known."""
    other_groups: tuple[str, ...] = ()
    """API groups of the system that are not read."""
    annotations: tuple[str, ...] = ()
    """Prefixes of its annotations."""

    def prefixes(self, settings: ImportSettings) -> tuple[str, ...]:
        """Returns the prefixes of its annotations, with the one that an option names."""
        named = (settings.flags.get(flag.key) for flag in self.flags if flag.metavar == "PREFIX")
        return (*self.annotations, *(f"{prefix}/" for prefix in named if prefix))

    @property
    def groups(self) -> frozenset[str]:
        """API groups of this system alone: an unread object of these groups is lost configuration."""
        kind_groups = {kind.group for kind in self.kinds} - {GATEWAY_API, "networking.k8s.io", ""}
        return frozenset((*kind_groups, *self.other_groups))
