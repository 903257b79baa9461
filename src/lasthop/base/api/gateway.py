"""GatewayClass, Gateway, ListenerSet, ReferenceGrant."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import GATEWAY_GROUP, Object, StringMap, Struct
from lasthop.base.api.routes import ExtensionReference, HTTPExternalAuthFilter

GROUP = GATEWAY_GROUP


class ParametersReference(Struct, frozen=True):
    group: str
    kind: str
    name: str
    namespace: str = ""


class GatewayClassSpec(Struct, frozen=True):
    controller_name: str
    parameters_ref: ParametersReference | None = None


class GatewayClass(Object, frozen=True):
    spec: GatewayClassSpec = GatewayClassSpec(controller_name="")


class LabelSelectorRequirement(Struct, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True):
    match_labels: StringMap = StringMap()
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class RouteNamespaces(Struct, frozen=True):
    from_: str = msgspec.field(default="Same", name="from")
    selector: LabelSelector | None = None


class ListenerNamespaces(RouteNamespaces, frozen=True):
    from_: str = msgspec.field(default="None", name="from")


class AllowedListeners(Struct, frozen=True):
    namespaces: ListenerNamespaces = ListenerNamespaces()


class RouteGroupKind(Struct, frozen=True):
    kind: str
    group: str = GROUP


class AllowedRoutes(Struct, frozen=True):
    namespaces: RouteNamespaces = RouteNamespaces()
    kinds: tuple[RouteGroupKind, ...] = ()


class SecretObjectReference(Struct, frozen=True):
    name: str
    group: str = ""
    kind: str = "Secret"
    namespace: str = ""


class ListenerTLSConfig(Struct, frozen=True):
    mode: str = "Terminate"
    certificate_refs: tuple[SecretObjectReference, ...] = ()
    options: StringMap = StringMap()


class ListenerFilter(Struct, frozen=True):
    type: str
    external_auth: HTTPExternalAuthFilter | None = None
    extension_ref: ExtensionReference | None = None


class ListenerFilters(Struct, frozen=True):
    requests: tuple[ListenerFilter, ...] = ()


class Listener(Struct, frozen=True):
    name: str
    port: int
    protocol: str
    hostname: str = ""
    tls: ListenerTLSConfig | None = None
    allowed_routes: AllowedRoutes = AllowedRoutes()
    filters: ListenerFilters = ListenerFilters()


class GatewayAddress(Struct, frozen=True):
    type: str = "IPAddress"
    value: str = ""
    routability: str = ""


class GatewayBackendTLS(Struct, frozen=True):
    client_certificate_ref: SecretObjectReference | None = None


class ObjectReference(Struct, frozen=True):
    group: str
    kind: str
    name: str
    namespace: str = ""


class FrontendTLSValidation(Struct, frozen=True):
    ca_certificate_refs: tuple[ObjectReference, ...] = ()
    mode: str = "AllowValidOnly"


class FrontendTLS(Struct, frozen=True):
    """`TLSConfig` in the spec."""

    validation: FrontendTLSValidation | None = None


class TLSPortConfig(Struct, frozen=True):
    port: int
    tls: FrontendTLS = FrontendTLS()


class FrontendTLSConfig(Struct, frozen=True):
    default: FrontendTLS = FrontendTLS()
    per_port: tuple[TLSPortConfig, ...] = ()


class GatewayTLSConfig(Struct, frozen=True):
    backend: GatewayBackendTLS | None = None
    frontend: FrontendTLSConfig | None = None


class GatewayInfrastructure(Struct, frozen=True):
    parameters_ref: ParametersReference | None = None
    labels: StringMap = StringMap()
    annotations: StringMap = StringMap()


class GatewaySpec(Struct, frozen=True):
    gateway_class_name: str
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[GatewayAddress, ...] = ()
    tls: GatewayTLSConfig | None = None
    infrastructure: GatewayInfrastructure | None = None
    allowed_listeners: AllowedListeners = AllowedListeners()
    default_scope: str = ""


class Gateway(Object, frozen=True):
    spec: GatewaySpec = GatewaySpec(gateway_class_name="")


class ParentGatewayReference(Struct, frozen=True):
    name: str
    group: str = GROUP
    kind: str = "Gateway"
    namespace: str = ""


class ListenerSetSpec(Struct, frozen=True):
    parent_ref: ParentGatewayReference
    listeners: tuple[Listener, ...] = ()


class ListenerSet(Object, frozen=True):
    spec: ListenerSetSpec = ListenerSetSpec(ParentGatewayReference(""))


class ReferenceGrantFrom(Struct, frozen=True):
    group: str
    kind: str
    namespace: str


class ReferenceGrantTo(Struct, frozen=True):
    group: str
    kind: str
    name: str = ""


class ReferenceGrantSpec(Struct, frozen=True):
    from_: tuple[ReferenceGrantFrom, ...] = msgspec.field(default=(), name="from")
    to: tuple[ReferenceGrantTo, ...] = ()


class ReferenceGrant(Object, frozen=True):
    spec: ReferenceGrantSpec = ReferenceGrantSpec()
