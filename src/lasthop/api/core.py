"""Kubernetes' own kinds that a gateway reads."""

from __future__ import annotations

from lasthop.api.meta import BytesMap, Object, StringMap, Struct


class Namespace(Object):
    pass


class ServicePort(Struct):
    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str = 0


class ServiceSpec(Struct):
    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    external_name: str = ""


class Service(Object):
    spec: ServiceSpec = ServiceSpec()

    def port(self, number: int) -> ServicePort | None:
        return next((p for p in self.spec.ports if p.port == number and p.protocol == "TCP"), None)


class EndpointConditions(Struct):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Struct):
    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()

    @property
    def usable(self) -> bool:
        return self.conditions.ready is not False


class EndpointPort(Struct):
    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Object):
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


class ConfigMap(Object):
    data: StringMap = StringMap()


class Secret(Object):
    """`data` holds the bytes themselves, no longer in base64."""

    type: str = "Opaque"
    data: BytesMap = BytesMap()


class ClusterTrustBundleSpec(Struct):
    trust_bundle: str = ""
    signer_name: str = ""


class ClusterTrustBundle(Object):
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()
