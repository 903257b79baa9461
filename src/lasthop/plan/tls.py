"""What is checked on a backend's certificate: a mode times a trust source, the same model as upstream's drafts for GEP-4152.

BackendTLS = SNI + Mode (which checks) x Trust (against what) + names + protocol limits + the Gateway's own certificate
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from lasthop.api.meta import Key


class Mode(StrEnum):
    STRICT = "Strict"
    """Chain, dates and names."""


class Anchors(msgspec.Struct, frozen=True):
    """Trust anchors given by reference: a union of all that could be read."""

    pem: bytes


class SystemStore(msgspec.Struct, frozen=True):
    """The CA bundle of the host or image that runs the proxy. `digest` is of its content, so a changed store is a change."""

    path: str
    digest: str


Trust = Anchors | SystemStore


class SanType(StrEnum):
    DNS = "DNS"
    URI = "URI"


class San(msgspec.Struct, frozen=True):
    type: SanType
    value: str

    def __str__(self) -> str:
        return self.value


class TLSOptions(msgspec.Struct, frozen=True):
    min_version: str = "1.2"
    max_version: str = "1.3"
    cipher_suites: tuple[str, ...] = ()
    curves: tuple[str, ...] = ()
    alpn: tuple[str, ...] = ()


class BackendTLS(msgspec.Struct, frozen=True):
    policy: Key
    sni: str
    trust: Trust
    names: tuple[San, ...]
    """Any one of them must be in the certificate."""
    mode: Mode = Mode.STRICT
    options: TLSOptions = TLSOptions()
    client_certificate: Key | None = None
    """The Secret with the Gateway's own certificate."""


class Plaintext(msgspec.Struct, frozen=True):
    """No policy speaks of this port."""


class Refused(msgspec.Struct, frozen=True):
    """The connection must fail: there is a policy and it cannot be fulfilled."""

    reason: str
    message: str
    policy: Key | None = None


HopTLS = Plaintext | BackendTLS | Refused
