"""The only list of kinds, with their API names and the structs that they decode to."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from lasthop.base.api import backends, core, gateway, policies, profiles, routes, telemetry, traffic, unserved, verification
from lasthop.base.api.documents import Json
from lasthop.base.api.meta import BytesMap, Object, PassedOn, StringMap, Struct

CONTROLLER_NAME: Final = "lasthop.dev/gateway-controller"
GATEWAY_API: Final = gateway.GROUP
EXPERIMENTAL_API: Final = backends.GROUP
MULTICLUSTER_API: Final = "multicluster.x-k8s.io"
LASTHOP_API: Final = profiles.GROUP


class Kind(Struct, frozen=True):
    kind: str
    group: str
    versions: tuple[str, ...]
    """Served versions we read, newest first."""
    plural: str
    struct: type[Object]
    namespaced: bool = True
    ancestors: int = 0
    """Limit of ancestor entries in the status, for kinds with an entry per Gateway."""

    @property
    def api_versions(self) -> tuple[str, ...]:
        return tuple(f"{self.group}/{v}" if self.group else v for v in self.versions)


SERVICE_GROUPS: Final = {"Service": "", "ServiceImport": MULTICLUSTER_API}
"""The kinds with ports that a BackendTLSPolicy can name, each with its group."""


def has_status(kind: Kind) -> bool:
    """Returns whether we may write its status."""
    return kind.group in (GATEWAY_API, EXPERIMENTAL_API) and kind.kind != "ReferenceGrant"


KINDS: Final[dict[str, Kind]] = {
    k.kind: k
    for k in (
        Kind("Namespace", "", ("v1",), "namespaces", core.Namespace, namespaced=False),
        Kind("Service", "", ("v1",), "services", core.Service),
        Kind("ServiceImport", MULTICLUSTER_API, ("v1beta1", "v1alpha1"), "serviceimports", core.ServiceImport),
        Kind("EndpointSlice", "discovery.k8s.io", ("v1",), "endpointslices", core.EndpointSlice),
        Kind("ConfigMap", "", ("v1",), "configmaps", core.ConfigMap),
        Kind("Secret", "", ("v1",), "secrets", core.Secret),
        Kind(
            "ClusterTrustBundle",
            "certificates.k8s.io",
            ("v1", "v1beta1", "v1alpha1"),
            "clustertrustbundles",
            core.ClusterTrustBundle,
            namespaced=False,
        ),
        Kind("GatewayClass", GATEWAY_API, ("v1", "v1beta1"), "gatewayclasses", gateway.GatewayClass, namespaced=False),
        Kind("Gateway", GATEWAY_API, ("v1", "v1beta1"), "gateways", gateway.Gateway),
        Kind("ReferenceGrant", GATEWAY_API, ("v1", "v1beta1"), "referencegrants", gateway.ReferenceGrant),
        Kind("HTTPRoute", GATEWAY_API, ("v1", "v1beta1"), "httproutes", routes.HTTPRoute),
        Kind(
            "BackendTLSPolicy", GATEWAY_API, ("v1", "v1alpha3"), "backendtlspolicies", policies.BackendTLSPolicy, ancestors=16
        ),
        Kind("GatewayProfile", LASTHOP_API, ("v1alpha1",), "gatewayprofiles", profiles.GatewayProfile),
        Kind("PinSet", LASTHOP_API, ("v1alpha1",), "pinsets", verification.PinSet),
        Kind("VerificationWaiver", LASTHOP_API, ("v1alpha1",), "verificationwaivers", verification.VerificationWaiver),
        Kind("ListenerSet", GATEWAY_API, ("v1",), "listenersets", gateway.ListenerSet),
        Kind("GRPCRoute", GATEWAY_API, ("v1",), "grpcroutes", routes.GRPCRoute),
        Kind("TLSRoute", GATEWAY_API, ("v1", "v1alpha3", "v1alpha2"), "tlsroutes", routes.TLSRoute),
        Kind("TCPRoute", GATEWAY_API, ("v1", "v1alpha2"), "tcproutes", routes.TCPRoute),
        Kind("UDPRoute", GATEWAY_API, ("v1", "v1alpha2"), "udproutes", routes.UDPRoute),
        Kind("XBackend", EXPERIMENTAL_API, ("v1alpha1",), "xbackends", backends.XBackend, ancestors=32),
        Kind(
            "XBackendTrafficPolicy",
            EXPERIMENTAL_API,
            ("v1alpha1",),
            "xbackendtrafficpolicies",
            traffic.XBackendTrafficPolicy,
            ancestors=16,
        ),
        Kind("XMesh", EXPERIMENTAL_API, ("v1alpha1",), "xmeshes", unserved.Unserved, namespaced=False),
        Kind(
            "XTelemetryPolicy",
            EXPERIMENTAL_API,
            ("v1alpha1",),
            "xtelemetrypolicies",
            telemetry.XTelemetryPolicy,
            ancestors=16,
        ),
    )
}


POD: Final = Kind("Pod", "", ("v1",), "pods", core.Pod)
"""Read only in a cluster, for the selectors of XBackends. A folder has no Pods."""
READ_KINDS: Final = {**KINDS, POD.kind: POD}


def _hook(kind: type, value: Any) -> Any:
    if kind is StringMap:
        return StringMap.of(value)
    if kind is BytesMap:
        return BytesMap.of(value)
    if kind is PassedOn:
        return PassedOn.of(value)
    raise TypeError(f"cannot read {kind.__name__}")


def decode(kind: str, document: Json) -> Object:
    """Decodes a JSON-like document (defaults applied, schema checked) to its struct.

    Raises `msgspec.ValidationError`; for a BackendTLSPolicy also if its spec has an unknown field.
    """
    struct = READ_KINDS[kind].struct
    try:
        return msgspec.convert(document, struct, dec_hook=_hook)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(document), struct, dec_hook=_hook)


def decode_json(kind: str, content: bytes) -> Object:
    """Decodes JSON as an API server sends it, directly to the struct if no value is null."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(READ_KINDS[kind].struct, dec_hook=_hook)
    try:
        return decoder.decode(content)
    except msgspec.ValidationError:
        return decode(kind, msgspec.json.decode(content))


_DECODERS: Final[dict[str, msgspec.json.Decoder[Object]]] = {}


def document(kind: str, obj: Object) -> Json:
    """Encodes an object as a user would write it. The content of a Secret is never shown."""
    return {"apiVersion": READ_KINDS[kind].api_versions[0], "kind": kind, **plain(obj)}


def plain(value: Any) -> Any:
    """Encodes a part of an object as a user would write it, without fields that have their default value."""
    match value:
        case StringMap():
            return dict(value)
        case BytesMap():
            return {key: f"<{len(content)} bytes, not shown>" for key, content in value}
        case PassedOn():
            return value.value
        case tuple():
            return [plain(item) for item in value]
        case msgspec.Struct():
            fields = ((field, getattr(value, field.name)) for field in _fields(type(value)))
            return {field.encode_name: plain(content) for field, content in fields if content != field.default}
        case _:
            return value


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Returns the fields of a struct. They are cached, because msgspec evaluates annotations on each call."""
    return msgspec.structs.fields(struct)


def _without_nulls(value: Any) -> Any:
    """Drops fields written as null, as the API server does."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_nulls(v) for v in value]
    return value
