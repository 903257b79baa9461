"""The audit: how every backend is connected, which certificates will expire, and what outlives a change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.store.store import Store

Locate = Callable[[Key], tuple[str, int] | None]

STREAMS: Final = (
    "A change of a policy, a PinSet, a waiver or a ReferenceGrant holds for every request and connection that begins after "
    "it. A WebSocket or gRPC stream that is open by then goes on as it began until it ends; close it at the backend if that "
    "is too late. A GatewayProfile that permits less ends it within 30 s."
)


class AuditInputs(msgspec.Struct, frozen=True):
    """The objects that an audit is made from: the same digest means the same objects."""

    objects: int = 0
    sha256: str = ""


class Audit(msgspec.Struct, frozen=True):
    hops: tuple[HopReport, ...]
    certificates: tuple[CertificateReport, ...]
    inputs: AuditInputs = AuditInputs()


def each_input(store: Store) -> Iterator[tuple[Key, bytes]]:
    """Yields the digest of each object, as far as Lasthop uses it. A status is not an input."""
    for kind in KINDS:
        for key in store.keys(kind):
            document = msgspec.to_builtins(store.get(key))
            document.pop("status", None)
            yield key, hashlib.sha256(msgspec.json.encode((key, document), order="sorted")).digest()


def inputs(digests: Iterable[tuple[Key, bytes]]) -> AuditInputs:
    whole, count = hashlib.sha256(), 0
    for _, digest in sorted(digests):
        whole.update(digest)
        count += 1
    return AuditInputs(count, whole.hexdigest())


R = TypeVar("R", HopReport, CertificateReport)


def placed(report: R, locate: Locate) -> R:
    """Adds the place of the object that decides, if it comes from a file."""
    place = next(filter(None, map(locate, report.objects)), None)
    return msgspec.structs.replace(report, file=place[0], line=place[1]) if place else report
