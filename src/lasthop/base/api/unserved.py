"""What of the bundle is admitted and not served in this version: whole kinds, which a finding says, and fields of kinds that
are, which the status of an object says. The list in docs/reference.md is made from this one."""

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
    """What happens."""


_ROUTES: Final = ("HTTPRoute", "GRPCRoute")
FIELDS: Final = (
    UnservedField(("Gateway",), "spec.defaultScope", "no effect (GEP-3793); routes name their Gateways"),
    UnservedField((*_ROUTES, "TLSRoute", "TCPRoute", "UDPRoute"), "spec.useDefaultGateways", "no effect (GEP-3793)"),
    UnservedField(_ROUTES, "spec.rules[].filters[].extensionRef", "the rule answers 500 (gRPC: UNAVAILABLE)"),
    UnservedField(_ROUTES, "spec.rules[].backendRefs[].filters[].extensionRef", "the rule answers 500 (gRPC: UNAVAILABLE)"),
    UnservedField(("Gateway", "ListenerSet"), "spec.listeners[].filters.requests[].extensionRef", "the listener is closed"),
    UnservedField(("Gateway",), "spec.addresses[].type", "others than IPAddress: the Gateway is not accepted"),
    UnservedField(("Gateway",), "spec.addresses[].routability", "others than Cluster: the address is not assigned"),
)
"""Those that are there for people, as a description, are none."""
