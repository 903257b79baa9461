"""What the operator permits a Gateway: on its way to backends, and of its clients."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Acknowledgement(msgspec.Struct, frozen=True):
    """An operator's word that a backend is meant to be verified as little as it is."""

    kind: str
    namespace: str
    name: str
    port: int
    """0: all of them."""
    verification: str
    """As `Plaintext`."""
    reason: str
    by: str
    """As `GatewayProfile gateways/prod`."""


class AccessLog(StrEnum):
    """Which requests are written to the access log. Failures are observed in any case."""

    OFF = "Off"
    FAILURES = "Failures"
    ALL = "All"


class PlaintextBackends(StrEnum):
    """Which backends without a policy may be reached."""

    ALLOW = "Allow"
    DECLARED = "Declared"
    """Those that say themselves that they speak plaintext."""
    DENY = "Deny"


class Refusal(StrEnum):
    """What edits the validating webhook refuses, where an operator says so."""

    WEAKER = "WeakerVerification"
    """A backend would be verified less than it is now."""
    NOT_PERMITTED = "NotPermitted"
    """A backend would be refused, because a profile does not permit it."""
    ENDLESS_WAIVER = "WaiverWithoutEnd"


class BackendRules(msgspec.Struct, frozen=True):
    waivers: bool = False
    """VerificationWaivers have an effect."""
    max_waiver_days: int | None = None
    """A waiver must expire, at the latest so many days after its creation."""
    plaintext: PlaintextBackends = PlaintextBackends.ALLOW
    pinned_only: bool = True
    """Pins alone may take the place of names and dates."""
    weak: bool = True
    """CAs and pinned certificates may have keys and signatures below today's floor."""
    gateway_certificate_first: bool = False
    """A Gateway that has a client certificate shows that, and not what a policy names."""
    min_version: str = ""
    """The lowest TLS version that a policy may permit; empty: any."""
    external_names: bool | None = None
    """None: as the way of running has it."""
    external_hostnames: bool | None = None
    """XBackends may name hosts outside of the cluster. None: where the connection is verified, or files are read."""
    acknowledged: tuple[Acknowledgement, ...] = ()
    profiles: tuple[str, ...] = ()
    """Who says so, for messages."""
    denies_waivers: tuple[str, ...] = ()
    """Those of them that deny waivers."""

    @property
    def by(self) -> str:
        return f"GatewayProfile {', '.join(self.profiles)}"

    @property
    def permits(self) -> str:
        """Identifies what is permitted, whoever says so; empty where no profile says anything."""
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
"""Where it cannot be known what is permitted."""


class HttpRules(msgspec.Struct, frozen=True):
    """What is done with requests that gateways and backends are known to read differently, and how patient a listener is.

    The defaults are Envoy's advice for a proxy at the edge. A rule for `/admin` is worth nothing if `//admin` or `/%2fadmin`
    passes by it and the backend takes both for the same.
    """

    escaped_slashes: str = "UnescapeAndRedirect"
    """`%2F`, `%5C` in a path. Redirected, the client asks again with the path that is then matched; gRPC is refused."""
    merge_slashes: bool = True
    underscores_in_headers: str = "DropHeader"
    """A backend may take `X_User` for `X-User`. Dropped, as by nginx, and not refused: gRPC metadata may have such names."""
    idle_seconds: int = 300
    """A client's connection without a request. Envoy's own default is an hour, against one limit of connections for all."""
    handshake_seconds: int = 10
    """From the connection to the end of its TLS handshake."""
