"""GatewayClass, Gateway, ReferenceGrant."""

from __future__ import annotations

import msgspec

from lasthop.api.meta import Object, StringMap, Struct

GROUP = "gateway.networking.k8s.io"


class ParametersReference(Struct):
    group: str
    kind: str
    name: str
    namespace: str = ""


class GatewayClassSpec(Struct):
    controller_name: str
    parameters_ref: ParametersReference | None = None


class GatewayClass(Object):
    spec: GatewayClassSpec = GatewayClassSpec(controller_name="")


class LabelSelectorRequirement(Struct):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct):
    match_labels: StringMap = StringMap()
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class RouteNamespaces(Struct):
    from_: str = msgspec.field(default="Same", name="from")
    selector: LabelSelector | None = None


class RouteGroupKind(Struct):
    kind: str
    group: str = GROUP


class AllowedRoutes(Struct):
    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class SecretObjectReference(Struct):
    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTLSConfig(Struct):
    mode: str = "Terminate"
    certificate_refs: tuple[SecretObjectReference, ...] = ()
    options: StringMap = StringMap()


class Listener(Struct):
    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTLSConfig | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()


class GatewayAddress(Struct):
    type: str = "IPAddress"
    value: str = ""


class GatewayBackendTLS(Struct):
    client_certificate_ref: SecretObjectReference | None = None


class GatewayTLSConfig(Struct):
    backend: GatewayBackendTLS | None = None


class GatewayInfrastructure(Struct):
    parameters_ref: ParametersReference | None = None


class GatewaySpec(Struct):
    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    tls: GatewayTLSConfig | None = None
    infrastructure: GatewayInfrastructure | None = None


class Gateway(Object):
    spec: GatewaySpec = GatewaySpec(gateway_class_name="")


class ReferenceGrantFrom(Struct):
    group: str
    kind: str
    namespace: str


class ReferenceGrantTo(Struct):
    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Struct):
    from_: tuple[ReferenceGrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[ReferenceGrantTo, ...] = ()


class ReferenceGrant(Object):
    spec: ReferenceGrantSpec = ReferenceGrantSpec()
