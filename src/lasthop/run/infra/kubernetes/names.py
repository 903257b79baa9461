"""Derives names and labels of a Gateway's objects. A Gateway's name may have 253 characters and dots, a Service's 63 and no
dots."""

from __future__ import annotations

import hashlib
from typing import Final

from lasthop.base.api.gateway import GROUP

LIMIT: Final = 63
"""Characters of a label's value and of a Service's name."""
PREFIX: Final = "lasthop-"

GATEWAY_NAME: Final = f"{GROUP}/gateway-name"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
APP: Final = "app.kubernetes.io/name"
PROXY: Final = "lasthop-proxy"
MANAGER: Final = "lasthop"
HASH: Final = "lasthop.dev/manifest-hash"
"""Annotation with the hash of the applied manifest."""
OWN: Final = frozenset({GATEWAY_NAME, MANAGED_BY, APP})
"""Labels that a Gateway cannot set."""


def object_name(gateway: str, suffix: str = "") -> str:
    """Returns `lasthop-<gateway><suffix>` if that is a valid name, otherwise a shortened one that is unique to the Gateway."""
    plain = f"{PREFIX}{gateway}"
    if "." not in gateway and len(plain) + len(suffix) <= LIMIT:
        return plain + suffix
    short = digest(gateway)
    room = LIMIT - len(suffix) - len(short) - 1
    return f"{plain.replace('.', '-')[:room].rstrip('-')}-{short}{suffix}"


def label_value(gateway: str) -> str:
    if len(gateway) <= LIMIT:
        return gateway
    short = digest(gateway)
    return f"{gateway[: LIMIT - len(short) - 1].rstrip('-.')}-{short}"


def selector(gateway: str) -> dict[str, str]:
    """Returns the labels that select the Pods. A Deployment's selector is immutable."""
    return {APP: PROXY, GATEWAY_NAME: label_value(gateway)}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
