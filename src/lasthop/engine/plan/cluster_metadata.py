"""Builds the cluster metadata that the access log repeats: fields that explain a failed handshake, and the identity of the TLS
configuration.

BackendTLS ──metadata──> cluster ──> Envoy ──> access log ──source, names──> edge/proxy/failures.py
HopTLS ────identity────> cluster ──> Envoy ──> access log, counters ───────> observe/, which compares it with the current one
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
    """Identifies the TLS of a hop. Two configurations are equal only if a handshake under one is evidence for the other. The
    owner and the reason of a waiver are omitted; the strength contains the waived check."""
    if isinstance(tls, Plaintext):
        return PLAINTEXT
    content = msgspec.msgpack.encode((tls.strength, msgspec.structs.replace(tls, waiver=None)), order="deterministic")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def metadata(tls: BackendTLS) -> dict[str, str]:
    """Returns the fields: the policy as `namespace/name` (any other object with its kind), the accepted names, and the Secret
    with the client certificate."""
    fields = {
        "policy": tls.source.path if tls.source.kind == _POLICY else str(tls.source),
        "wants": _COMMA.join(map(str, tls.names)),
    }
    return fields | ({"shows": str(tls.client_certificate)} if tls.client_certificate else {})


def source(policy: str) -> Key:
    """Returns the object that the field `policy` names."""
    return Key.parse(policy) or Key.read(_POLICY, policy)


def names(wants: str) -> list[str]:
    """Returns the names in the field `wants`."""
    return wants.split(_COMMA) if wants else []
