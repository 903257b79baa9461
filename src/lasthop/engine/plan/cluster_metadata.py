"""What a cluster tells the access log about its TLS: fields that explain a failed handshake, and which TLS it was.

BackendTLS ──metadata──> cluster ──> Envoy ──> access log ──source, names──> edge/proxy/failures.py
HopTLS ────identity────> cluster ──> Envoy ──> access log, counters ───────> observe/, which compares it with the present one
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.plan.tls import BackendTLS, Plaintext

_POLICY: Final = "BackendTLSPolicy"
_COMMA: Final = ", "
"""Neither a DNS name nor a URI contains a space."""
PLAINTEXT: Final = "plaintext"


def identity(tls: BackendTLS | Plaintext) -> str:
    """Identifies how a hop is connected: equal for two configurations only if a handshake under one is evidence for the other.
    The owner and the reason of a waiver do not matter for that; what it gives up is in the strength."""
    if isinstance(tls, Plaintext):
        return PLAINTEXT
    content = msgspec.msgpack.encode((tls.strength, msgspec.structs.replace(tls, waiver=None)), order="deterministic")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


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
