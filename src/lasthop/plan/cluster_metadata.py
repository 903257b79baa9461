"""What a cluster's metadata tells the access log about its TLS, so that a failed handshake can be explained.

BackendTLS ──metadata──> cluster ──> Envoy ──> access log ──source, names──> proxy/failures.py
"""

from __future__ import annotations

from typing import Final

from lasthop.api.meta import Key
from lasthop.plan.tls import BackendTLS

_POLICY: Final = "BackendTLSPolicy"
_COMMA: Final = ", "
"""Neither a DNS name nor a URI contains a space."""


def metadata(tls: BackendTLS) -> dict[str, str]:
    """Returns the fields: the policy as `namespace/name` (anything else with its kind), the names that it accepts, and the
    Secret with the client certificate."""
    found = {
        "policy": tls.source.path if tls.source.kind == _POLICY else str(tls.source),
        "wants": _COMMA.join(map(str, tls.names)),
    }
    return found | ({"shows": str(tls.client_certificate)} if tls.client_certificate else {})


def source(policy: str) -> Key:
    """Returns the object that the field `policy` names."""
    return Key.parse(policy) or Key.read(_POLICY, policy)


def names(wants: str) -> list[str]:
    """Returns the names in the field `wants`."""
    return wants.split(_COMMA) if wants else []
