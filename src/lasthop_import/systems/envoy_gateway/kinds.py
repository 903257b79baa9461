"""Lists the kinds of Envoy Gateway, and the Gateway API kinds that the import copies."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.kinds import KINDS as GATEWAY_API_KINDS
from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object

GROUP: Final = "gateway.envoyproxy.io"
CONTROLLER: Final = "gateway.envoyproxy.io/gatewayclass-controller"
_OWN: Final = {
    "Backend": "backends",
    "EnvoyProxy": "envoyproxies",
    "ClientTrafficPolicy": "clienttrafficpolicies",
    "BackendTrafficPolicy": "backendtrafficpolicies",
    "SecurityPolicy": "securitypolicies",
    "HTTPRouteFilter": "httproutefilters",
    "EnvoyPatchPolicy": "envoypatchpolicies",
    "EnvoyExtensionPolicy": "envoyextensionpolicies",
}
OWN: Final = {name: Kind(name, GROUP, ("v1alpha1",), plural, Object) for name, plural in _OWN.items()}
ROUTES: Final = ("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute")
COPIED: Final = ("GatewayClass", "Gateway", "ListenerSet", *ROUTES, "ReferenceGrant", "BackendTLSPolicy")
KINDS: Final = (*OWN.values(), *(GATEWAY_API_KINDS[name] for name in COPIED))
