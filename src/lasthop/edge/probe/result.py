"""Declares the result of a probe: the checks of each endpoint of each port to which a Gateway would connect."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

CLIENT_CERTIFICATE: Final = "client certificate"
STRENGTH: Final = "strength"
"""The check for weak keys and signatures that Envoy accepts."""
LISTED: Final = 5
"""CAs and names in a list; more would hide the result."""


def listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}"


class CheckOutcome(StrEnum):
    PASS = "pass"
    WARN = "warn"
    """The gateway connects, but the backend may still reject requests."""
    FAIL = "fail"
    SKIP = "skip"
    """The gateway does not require the check."""


class Check(msgspec.Struct, frozen=True):
    name: str
    state: CheckOutcome
    found: str
    remedy: str = ""
    """The remedy after a failure or warning."""
    option: tuple[str, str] | None = None
    """The policy's option and value with which the check would pass."""


class EndpointResult(msgspec.Struct, frozen=True):
    address: str
    checks: tuple[Check, ...]
    """The checks up to the first that makes further checks impossible."""
    certificate: dict[str, Any] | None = None
    """A `CertificateInfo` without its PEM."""

    @property
    def passes(self) -> bool:
        return all(check.state is not CheckOutcome.FAIL for check in self.checks)


class TargetResult(msgspec.Struct, frozen=True):
    gateway: str
    service: str
    """`Service shop/api`, `XBackend shop/far`."""
    port: int
    policy: str
    """The source of the TLS settings; empty without one."""
    refused: str
    unused: str
    endpoints: tuple[EndpointResult, ...]
    more: int = 0
    """Endpoints that were not tried."""

    @property
    def passes(self) -> bool:
        return not self.refused and bool(self.endpoints) and all(endpoint.passes for endpoint in self.endpoints)

    @property
    def connects_nowhere(self) -> bool:
        return bool(self.refused) or not any(endpoint.passes for endpoint in self.endpoints)


class ProbeResult(msgspec.Struct, frozen=True):
    object: str
    """`BackendTLSPolicy shop/api`."""
    targets: tuple[TargetResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[TargetResult, ...]:
        return tuple(target for target in self.targets if not target.unused)

    @property
    def fails(self) -> bool:
        return any(not target.passes for target in self.used)

    @property
    def passes(self) -> bool:
        return bool(self.used) and not self.fails


def document(result: ProbeResult) -> dict[str, Any]:
    """Returns the result as JSON, including the derived verdicts."""
    result_json: dict[str, Any] = msgspec.to_builtins(result)
    result_json["passes"] = result.passes
    for target, of_target in zip(result_json["targets"], result.targets, strict=True):
        target["passes"] = of_target.passes
        for endpoint, of_endpoint in zip(target["endpoints"], of_target.endpoints, strict=True):
            endpoint["passes"] = of_endpoint.passes
    return result_json
