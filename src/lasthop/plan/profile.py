"""What the operator permits a Gateway on its way to backends."""

from __future__ import annotations

import msgspec


class BackendRules(msgspec.Struct, frozen=True):
    waivers: bool = False
    """VerificationWaivers have an effect."""
    max_waiver_days: int | None = None
    """A waiver must expire, at the latest so many days after its creation."""
    plaintext: bool = True
    """Backends that no policy speaks of may be reached."""
    min_version: str = ""
    """The lowest TLS version that a policy may permit; empty: any."""
    external_names: bool | None = None
    """None: as the way of running has it."""
    external_hostnames: bool | None = None
    """XBackends may name hosts outside of the cluster. None: where the connection is verified, or files are read."""
    profiles: tuple[str, ...] = ()
    """Who says so, for messages."""

    @property
    def by(self) -> str:
        return f"GatewayProfile {', '.join(self.profiles)}"


NOTHING = BackendRules(waivers=False, plaintext=False, min_version="1.3", external_names=False, external_hostnames=False)
"""Where it cannot be known what is permitted."""
