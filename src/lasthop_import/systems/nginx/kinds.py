"""Lists the kinds of NGINX Inc.'s controller."""

from __future__ import annotations

from typing import Final

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object

GROUP: Final = "k8s.nginx.org"
_BOTH: Final = ("v1", "v1alpha1")
"""Versions with the same fields."""

VIRTUAL_SERVER: Final = Kind("VirtualServer", GROUP, ("v1",), "virtualservers", Object)
VIRTUAL_SERVER_ROUTE: Final = Kind("VirtualServerRoute", GROUP, ("v1",), "virtualserverroutes", Object)
TRANSPORT_SERVER: Final = Kind("TransportServer", GROUP, _BOTH, "transportservers", Object)
POLICY: Final = Kind("Policy", GROUP, _BOTH, "policies", Object)
GLOBAL_CONFIGURATION: Final = Kind("GlobalConfiguration", GROUP, _BOTH, "globalconfigurations", Object)
OWN_KINDS: Final = (VIRTUAL_SERVER, VIRTUAL_SERVER_ROUTE, TRANSPORT_SERVER, POLICY, GLOBAL_CONFIGURATION)
