"""Lists kinds and fields of the bundle that are admitted but not served. A finding reports unserved kinds, the status of an
object reports unserved fields. `make docs` renders the list in docs/reference.md."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.meta import Object, Struct

NOT_SERVED: Final = "{} is not served by this version"


class UnservedSpec(Struct, frozen=True):
    controller_name: str = ""


class Unserved(Object, frozen=True):
    spec: UnservedSpec = UnservedSpec()


class UnservedField(Struct, frozen=True):
    kinds: tuple[str, ...]
    path: str
    """As in the CRD, `[]` for the entries of a list."""
    instead: str
    """The effect of the field."""


_ROUTES: Final = ("HTTPRoute", "GRPCRoute")
FIELDS: Final = (
    UnservedField(("Gateway",), "spec.defaultScope", "no effect (GEP-3793); routes name their Gateways"),
    UnservedField((*_ROUTES, "TLSRoute", "TCPRoute", "UDPRoute"), "spec.useDefaultGateways", "no effect (GEP-3793)"),
    UnservedField(_ROUTES, "spec.rules[].filters[].extensionRef", "the rule returns 500 (gRPC: UNAVAILABLE)"),
    UnservedField(_ROUTES, "spec.rules[].backendRefs[].filters[].extensionRef", "the rule returns 500 (gRPC: UNAVAILABLE)"),
    UnservedField(("Gateway", "ListenerSet"), "spec.listeners[].filters.requests[].extensionRef", "the listener is closed"),
    UnservedField(("Gateway",), "spec.addresses[].type", "others than IPAddress: the Gateway is not accepted"),
    UnservedField(("Gateway",), "spec.addresses[].routability", "others than Cluster: the address is not assigned"),
)
"""Fields for people, such as descriptions, are not listed."""
