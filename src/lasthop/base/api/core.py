"""Kubernetes' own kinds that a gateway reads."""

from __future__ import annotations

from typing import Final

import msgspec

from lasthop.base.api.meta import BytesMap, Object, ObjectMeta, StringMap, Struct

CA_KEY: Final = "ca.crt"
CRL_KEY: Final = "ca.crl"
"""The key of revocation lists beside `ca.crt`."""
READ_KEYS: Final = {"ConfigMap": (CA_KEY, CRL_KEY), "Secret": (CA_KEY, CRL_KEY, "tls.crt", "tls.key")}
"""The only data keys of each kind that a gateway reads."""


class Namespace(Object, frozen=True):
    pass


class ServicePort(Struct, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str = 0


class PortsSpec(Struct, frozen=True):
    ports: tuple[ServicePort, ...] = ()


class AnyService(Object, frozen=True):
    """The common part of Service and ServiceImport: named ports with EndpointSlices."""

    spec: PortsSpec = PortsSpec()

    def port(self, number: int, transport: str = "TCP") -> ServicePort | None:
        return next((p for p in self.spec.ports if p.port == number and p.protocol == transport), None)


class ServiceSpec(PortsSpec, frozen=True):
    type: str = "ClusterIP"
    external_name: str = ""
    selector: StringMap = StringMap()
    """Selects the Pods that are endpoints, in a cluster only."""


class Service(AnyService, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ServiceImport(AnyService, frozen=True):
    """A service of other clusters of a ClusterSet (GEP-1748). A gateway uses its endpoints, not its virtual IP."""


class EndpointConditions(Struct, frozen=True):
    ready: bool | None = None


class Endpoint(Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()

    @property
    def usable(self) -> bool:
        return self.conditions.ready is not False


class EndpointPort(Struct, frozen=True):
    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Object, frozen=True):
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class PodMeta(ObjectMeta, frozen=True):
    deletion_timestamp: str = ""


class PodIP(Struct, frozen=True):
    ip: str = ""


class PodCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class PodStatus(Struct, frozen=True):
    pod_ips: tuple[PodIP, ...] = msgspec.field(default=(), name="podIPs")
    """The first address belongs to the cluster's primary family."""
    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()


class Pod(Object, frozen=True):
    metadata: PodMeta = PodMeta()
    status: PodStatus = PodStatus()

    @property
    def address(self) -> str:
        """The address of a Pod that is ready, not terminating and not finished, like a Service's endpoint; otherwise empty."""
        ready = any((condition.type, condition.status) == ("Ready", "True") for condition in self.status.conditions)
        ended = self.metadata.deletion_timestamp or self.status.phase in ("Succeeded", "Failed")
        return self.status.pod_ips[0].ip if ready and not ended and self.status.pod_ips else ""


class ConfigMap(Object, frozen=True):
    data: StringMap = StringMap()


class Secret(Object, frozen=True):
    """`data` holds decoded bytes, not base64."""

    type: str = "Opaque"
    data: BytesMap = BytesMap()


class ClusterTrustBundleSpec(Struct, frozen=True):
    trust_bundle: str = ""


class ClusterTrustBundle(Object, frozen=True):
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()
