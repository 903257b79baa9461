"""The result of a probe: for each port that a Gateway would connect to, for each endpoint, check by check."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

import msgspec

CLIENT_CERTIFICATE: Final = "client certificate"
STRENGTH: Final = "strength"
"""The check of keys and signatures that Envoy accepts and that are weak all the same."""
LISTED: Final = 5
"""CAs and names that a check lists; more would hide the answer."""


class CheckState(StrEnum):
    PASS = "pass"
    WARN = "warn"
    """The gateway connects, but the backend may refuse requests all the same."""
    FAIL = "fail"
    SKIP = "skip"
    """Not asked for."""


class Check(msgspec.Struct, frozen=True):
    name: str
    state: CheckState
    found: str
    remedy: str = ""
    """What to change if it fails or warns."""
    option: tuple[str, str] | None = None
    """The option of the policy, and its value, with which the check would pass."""


class EndpointResult(msgspec.Struct, frozen=True):
    address: str
    checks: tuple[Check, ...]
    """Up to the one that leaves nothing to look at."""
    certificate: dict[str, Any] | None = None
    """A `CertificateInfo` without its PEM."""

    @property
    def passes(self) -> bool:
        return all(check.state is not CheckState.FAIL for check in self.checks)


class TargetResult(msgspec.Struct, frozen=True):
    gateway: str
    service: str
    """`Service shop/api`, `XBackend shop/far`."""
    port: int
    policy: str
    """What asks for the TLS that is tried; empty if nothing does."""
    refused: str
    unused: str
    endpoints: tuple[EndpointResult, ...]
    more: int = 0
    """Endpoints that were not tried."""

    @property
    def passes(self) -> bool:
        return not self.refused and bool(self.endpoints) and all(each.passes for each in self.endpoints)

    @property
    def connects_nowhere(self) -> bool:
        return bool(self.refused) or not any(each.passes for each in self.endpoints)


class ProbeResult(msgspec.Struct, frozen=True):
    object: str
    """`BackendTLSPolicy shop/api`."""
    targets: tuple[TargetResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[TargetResult, ...]:
        return tuple(each for each in self.targets if not each.unused)

    @property
    def fails(self) -> bool:
        return any(not each.passes for each in self.used)

    @property
    def passes(self) -> bool:
        return bool(self.used) and not self.fails


def document(result: ProbeResult) -> dict[str, Any]:
    """Returns the JSON of a result, with the verdicts, which are derived."""
    found: dict[str, Any] = msgspec.to_builtins(result)
    found["passes"] = result.passes
    for target, of_target in zip(found["targets"], result.targets, strict=True):
        target["passes"] = of_target.passes
        for endpoint, of_endpoint in zip(target["endpoints"], of_target.endpoints, strict=True):
            endpoint["passes"] = of_endpoint.passes
    return found
