"""Kubernetes' own kinds that a gateway reads."""

from __future__ import annotations

from lasthop.api.meta import BytesMap, Object, StringMap, Struct


class Namespace(Object, frozen=True):
    pass


class ServicePort(Struct, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str = 0


class ServiceSpec(Struct, frozen=True):
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    external_name: str = ""
    selector: StringMap = StringMap()
    """Which Pods are its endpoints: only a cluster knows them."""


class Service(Object, frozen=True):
    spec: ServiceSpec = ServiceSpec()

    def port(self, number: int, transport: str = "TCP") -> ServicePort | None:
        return next((p for p in self.spec.ports if p.port == number and p.protocol == transport), None)


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


class ConfigMap(Object, frozen=True):
    data: StringMap = StringMap()


class Secret(Object, frozen=True):
    """`data` holds the bytes themselves, no longer in base64."""

    type: str = "Opaque"
    data: BytesMap = BytesMap()


class ClusterTrustBundleSpec(Struct, frozen=True):
    trust_bundle: str = ""


class ClusterTrustBundle(Object, frozen=True):
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()
