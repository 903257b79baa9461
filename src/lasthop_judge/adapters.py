"""Configures the features of GEP-4152, which has no API yet, for each implementation."""

from __future__ import annotations

import dataclasses
from typing import Final

from lasthop_judge.certificates import Issuer
from lasthop_judge.model import Json, PinnedCertificates, SkippedChecks


@dataclasses.dataclass(frozen=True)
class ExtensionObjects:
    """The objects for the extension of a policy."""

    objects: tuple[Json, ...] = ()
    refs: tuple[Json, ...] = ()
    """Further entries of caCertificateRefs."""
    backend: Json | None = None
    """The backendRef in place of the Service; then no policy is written."""


@dataclasses.dataclass(frozen=True)
class Permission:
    """The operator's permission for one Gateway."""

    objects: tuple[Json, ...]
    spec: Json
    """Further fields of the Gateway's spec."""


class Adapter:
    """An implementation without skipped checks or pins."""

    name = "none"
    controllers: tuple[str, ...] = ()
    """controllerNames by which `--adapter auto` finds it."""

    def extension_objects(
        self, name: str, extension: SkippedChecks | PinnedCertificates, address: str, port: int, issuer: Issuer
    ) -> ExtensionObjects | None:
        """Returns the objects for an extension under this name, or None if the implementation cannot express it. Address
        and port are the backend's."""
        return None

    def permission(self, gateway: str, permitted: bool) -> Permission | None:
        """Returns the objects that permit or deny extensions at one Gateway; None if permissions are not per Gateway."""
        return None

    degraded: tuple[str, ...] = ()
    """Types of conditions that are True while verification is degraded."""
    permits_everywhere = False
    """Whether extensions hold without a permission, so that cases of a permitting Gateway run on the plain one."""
    ends_old_connections = False
    """Whether the implementation promises that no request uses a connection from before a change. GEP-1897 requires
    verification only before a connection is made."""


class Lasthop(Adapter):
    name = "lasthop"
    controllers = ("lasthop.dev/gateway-controller",)
    degraded = ("VerificationDegraded",)
    ends_old_connections = True
    _api: Final = "lasthop.dev/v1alpha1"
    _waives: Final = {SkippedChecks.ALL: "All", SkippedChecks.NAMES: "Names", SkippedChecks.DATES: "Expiry"}

    def extension_objects(
        self, name: str, extension: SkippedChecks | PinnedCertificates, address: str, port: int, issuer: Issuer
    ) -> ExtensionObjects:
        if isinstance(extension, PinnedCertificates):
            kind, spec = "PinSet", _pins(issuer, extension)
        else:
            kind, spec = "VerificationWaiver", {"waives": self._waives[extension], "reason": "lasthop judge"}
        manifest = {"apiVersion": self._api, "kind": kind, "metadata": {"name": name}, "spec": spec}
        return ExtensionObjects((manifest,), ({"group": "lasthop.dev", "kind": kind, "name": name},))

    def permission(self, gateway: str, permitted: bool) -> Permission:
        spec = {"backendTLS": {"waivers": "Allow" if permitted else "Deny"}}
        profile = {"apiVersion": self._api, "kind": "GatewayProfile", "metadata": {"name": gateway}, "spec": spec}
        ref = {"group": "lasthop.dev", "kind": "GatewayProfile", "name": gateway}
        return Permission((profile,), {"infrastructure": {"parametersRef": ref}})


def _pins(issuer: Issuer, pins: PinnedCertificates) -> Json:
    issued = [issuer.issue(recipe) for recipe in pins.certificates]
    if pins.by == "key":
        return {"pins": [{"type": "SPKI", "value": certificate.key_hash} for certificate in issued]}
    return {"pins": [{"type": "Certificate", "value": certificate.certificate_hash} for certificate in issued]}


class EnvoyGateway(Adapter):
    """Skips all checks by a Backend with `insecureSkipVerify`, which its operator enables for all Gateways at once; it has
    neither pins nor a partial skip."""

    name = "envoy-gateway"
    controllers = ("gateway.envoyproxy.io/gatewayclass-controller",)
    permits_everywhere = True

    def extension_objects(
        self, name: str, extension: SkippedChecks | PinnedCertificates, address: str, port: int, issuer: Issuer
    ) -> ExtensionObjects | None:
        if extension is not SkippedChecks.ALL:
            return None
        spec = {"endpoints": [{"ip": {"address": address, "port": port}}], "tls": {"insecureSkipVerify": True}}
        manifest = {
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "Backend",
            "metadata": {"name": name},
            "spec": spec,
        }
        return ExtensionObjects((manifest,), backend={"group": "gateway.envoyproxy.io", "kind": "Backend", "name": name})


ADAPTERS: Final[dict[str, Adapter]] = {adapter.name: adapter for adapter in (Adapter(), Lasthop(), EnvoyGateway())}


def adapter_of(controller: str) -> Adapter:
    return next((adapter for adapter in ADAPTERS.values() if controller in adapter.controllers), ADAPTERS["none"])
