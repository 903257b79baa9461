"""Certificates that Envoy refused although they passed every check of ours."""

from __future__ import annotations

import hashlib
from typing import Final

from lasthop.api.core import Secret
from lasthop.api.meta import Key
from lasthop.plan.problem import Problem, invalid_certificate_ref
from lasthop.store.graph import Graph
from lasthop.store.sources import Input
from lasthop.store.store import read


def pair_part(gateway: Key, secret: Key) -> str:
    """By Gateway: what the proxy of one says of a Secret is no matter of another's."""
    return f"{gateway.path}#{secret.path}"


def pair_digest(secret: Secret) -> str:
    """Of the certificate and its key, so that a new one is not blamed for the old."""
    hashed = hashlib.blake2b(digest_size=12)
    for value in (secret.data.get("tls.crt"), secret.data.get("tls.key")):
        hashed.update(len(value or b"").to_bytes(8, "big") + (value or b""))
    return hashed.hexdigest()


REFUSED_PAIR: Final = Input[str, str, str]("refused-pair")
"""What Envoy said of a certificate, by part and digest."""


def refused_pair(g: Graph, gateway: Key, secret: Key) -> Problem | None:
    """Returns what this Gateway's Envoy has refused of a Secret as it is now."""
    obj = read(g, secret, Secret)
    said = REFUSED_PAIR.of(g, pair_part(gateway, secret), pair_digest(obj)) if obj else None
    if said is None:
        return None
    return invalid_certificate_ref(f"Envoy refused the certificate of {secret}: {said or 'no reason given'}", secret)
