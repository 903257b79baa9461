"""Rules that an operator sets in GatewayProfiles, for a Gateway's connections to backends and from clients."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Acknowledgement(msgspec.Struct, frozen=True):
    """An operator's acknowledgement that the weak verification of a backend is intended."""

    kind: str
    namespace: str
    name: str
    port: int
    """0 means all ports."""
    verification: str
    """For example `Plaintext`."""
    reason: str
    by: str
    """For example `GatewayProfile gateways/prod`."""


class AccessLog(StrEnum):
    """The requests that are written to the access log. Failures are observed in any case."""

    OFF = "Off"
    FAILURES = "Failures"
    ALL = "All"


class PlaintextBackends(StrEnum):
    """The backends without a policy that may be reached."""

    ALLOW = "Allow"
    DECLARED = "Declared"
    """Backends whose appProtocol is a plaintext protocol."""
    DENY = "Deny"


class Refusal(StrEnum):
    """Edits that the validating webhook refuses if an operator configures it."""

    WEAKER = "WeakerVerification"
    """The edit weakens the verification of a backend."""
    NOT_PERMITTED = "NotPermitted"
    """The edit makes a profile refuse a backend."""
    ENDLESS_WAIVER = "WaiverWithoutEnd"


class BackendRules(msgspec.Struct, frozen=True):
    waivers: bool = False
    """VerificationWaivers take effect."""
    max_waiver_days: int | None = None
    """A waiver must expire at most this many days after its creation."""
    plaintext: PlaintextBackends = PlaintextBackends.ALLOW
    pinned_only: bool = True
    """Pins without CAs are permitted, although names and dates are then not checked."""
    weak: bool = True
    """CAs and pinned certificates with weak keys or signatures are permitted."""
    gateway_certificate_first: bool = False
    """The Gateway's own client certificate takes precedence over one that a policy names."""
    min_version: str = ""
    """The lowest TLS version that a policy may set; empty permits any."""
    external_names: bool | None = None
    """None: the default of the runtime applies (folder or cluster)."""
    external_hostnames: bool | None = None
    """XBackends may name hosts outside the cluster. None permits it if the connection is verified, or in a folder."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    profiles: tuple[str, ...] = ()
    """The profiles that set these rules, for messages."""
    denies_waivers: tuple[str, ...] = ()
    """The profiles that deny waivers."""

    @property
    def by(self) -> str:
        return f"GatewayProfile {', '.join(self.profiles)}"

    @property
    def permits(self) -> str:
        """Identifies the permissions, independent of the profiles that set them; empty without restrictions."""
        rules = msgspec.structs.replace(self, acknowledged=(), profiles=(), denies_waivers=(), gateway_certificate_first=False)
        return "" if rules == BackendRules() else msgspec.json.encode(rules).decode()


NOTHING = BackendRules(
    waivers=False,
    plaintext=PlaintextBackends.DENY,
    pinned_only=False,
    weak=False,
    gateway_certificate_first=True,
    min_version="1.3",
    external_names=False,
    external_hostnames=False,
)
"""The strictest rules: they apply while a profile cannot be read."""


class HttpRules(msgspec.Struct, frozen=True):
    """Normalization of ambiguous requests, and timeouts of a listener. The defaults follow Envoy's advice for edge proxies. A
    rule for `/admin` protects nothing if `//admin` or `/%2fadmin` bypasses it and the backend treats them as equal."""

    escaped_slashes: str = "UnescapeAndRedirect"
    """`%2F`, `%5C` in a path. After the redirect, the client sends the path that is then matched; gRPC is refused."""
    merge_slashes: bool = True
    underscores_in_headers: str = "DropHeader"
    """A backend may take `X_User` for `X-User`. Dropped, as by nginx, and not refused: gRPC metadata may have such names."""
    idle_seconds: int = 300
    """Timeout of client connections without a request. Envoy's default is an hour, and all clients share one limit of
    connections."""
    handshake_seconds: int = 10
    """Timeout of the TLS handshake, from the start of the connection."""
