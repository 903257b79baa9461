"""The audit: how every backend is connected, which certificates will expire, and what outlives a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport

Locate = Callable[[Key], tuple[str, int] | None]

STREAMS: Final = (
    "A change of a policy, a PinSet, a waiver or a ReferenceGrant holds for every request and connection that begins after "
    "it. A WebSocket or gRPC stream that is open by then goes on as it began until it ends; close it at the backend if that "
    "is too late. A GatewayProfile that permits less ends it within 30 s."
)


class Audit(msgspec.Struct, frozen=True):
    hops: tuple[HopReport, ...]
    certificates: tuple[CertificateReport, ...]


R = TypeVar("R", HopReport, CertificateReport)


def placed(report: R, locate: Locate) -> R:
    """Adds the place of the object that decides, if it comes from a file."""
    place = next(filter(None, map(locate, report.objects)), None)
    return msgspec.structs.replace(report, file=place[0], line=place[1]) if place else report
