"""The audit: how every backend is connected, which certificates will expire, and what outlives a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from lasthop.api.meta import Key
from lasthop.outputs.audit.certificates import CertificateReport
from lasthop.outputs.audit.hops import HopReport, objects_of

Locate = Callable[[Key], tuple[str, int] | None]

STREAMS: Final = (
    "A change of a policy, a PinSet or a waiver holds for every request and connection that begins after it. A WebSocket or "
    "gRPC stream that is open by then goes on as it began until it ends; close it at the backend if that is too late."
)


class Audit(msgspec.Struct, frozen=True):
    hops: tuple[HopReport, ...]
    certificates: tuple[CertificateReport, ...]


R = TypeVar("R", HopReport, CertificateReport)


def placed(report: R, locate: Locate) -> R:
    """Adds the place of the object that decides, if it comes from a file."""
    return msgspec.structs.replace(
        report, **_first(locate, objects_of(report) if isinstance(report, HopReport) else _holder(report))
    )


def _holder(found: CertificateReport) -> Iterator[Key]:
    kind, _, path = found.holder.partition(" ")
    namespace, _, name = path.rpartition("/")
    yield Key(kind, namespace, name)


def _first(locate: Locate, objects: Iterable[Key]) -> dict[str, str | int]:
    place = next((found for found in map(locate, objects) if found), None)
    return {"file": place[0], "line": place[1]} if place else {}
