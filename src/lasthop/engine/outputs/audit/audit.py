"""The audit as a value and as JSON: hops, certificates, and the digest of the objects."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import KINDS
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength
from lasthop.engine.store.store import Store

Locate = Callable[[Key], tuple[str, int] | None]

STREAMS: Final = (
    "A change of a policy, a PinSet, a waiver or a ReferenceGrant applies to every request and connection that begins after "
    "it. An open WebSocket or gRPC stream continues under the old rules until it ends; close it at the backend if that is "
    "too late. A stricter GatewayProfile ends it within 30 s."
)


class AuditInputs(msgspec.Struct, frozen=True):
    """Identifies the objects of an audit: equal digests mean equal objects."""

    objects: int = 0
    sha256: str = ""


class Audit(msgspec.Struct, frozen=True):
    hops: tuple[HopReport, ...]
    certificates: tuple[CertificateReport, ...]
    inputs: AuditInputs = AuditInputs()


def each_input(store: Store) -> Iterator[tuple[Key, bytes]]:
    """Yields the digest of the fields of each object that Lasthop uses, without its status."""
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
    """Adds file and line of the deciding object, if it comes from a file."""
    place = next(filter(None, map(locate, report.objects)), None)
    return msgspec.structs.replace(report, file=place[0], line=place[1]) if place else report


# --- as JSON of the admin API: objects by name; a backend as `service`, with its `kind` unless that is Service ------------


_KINDS = {"gateway": "Gateway", "policy": "BackendTLSPolicy", "waiver": "VerificationWaiver"}
"""The fields of a hop that contain an object, and the kind of each."""
_STRENGTHS = {strength.label: strength for strength in Strength}


def document(audit: Audit) -> Json:
    return {
        "inputs": msgspec.to_builtins(audit.inputs),
        "hops": [_hop(hop) for hop in audit.hops],
        "certificates": [_certificate(certificate) for certificate in audit.certificates],
    }


def read(written: Json) -> Audit:
    hops = tuple(_read_hop(**hop) for hop in written["hops"])
    certificates = tuple(_read_certificate(**certificate) for certificate in written["certificates"])
    return Audit(hops, certificates, msgspec.convert(written["inputs"], AuditInputs))


def _hop(hop: HopReport) -> Json:
    written: Json = msgspec.to_builtins(hop)
    kind = written.pop("backend")[0]
    written |= {field: getattr(hop, field).path for field in _KINDS if field in written}
    written |= {"routes": [str(route) for route in hop.routes]} if hop.routes else {}
    written |= {"strength": hop.strength.label, "manner": hop.manner, "service": hop.backend.path}
    return written if kind == "Service" else {**written, "kind": kind}


def _read_hop(
    service: str, strength: str, manner: str, kind: str = "Service", routes: tuple[str, ...] = (), **fields: Any
) -> HopReport:
    """Reads a hop. Its `manner` is derived from the other fields, and written only for readers."""
    keys: Json = {field: Key.read(_KINDS[field], path) for field, path in fields.items() if field in _KINDS}
    keys |= {"backend": Key.read(kind, service), "routes": tuple(map(Key.parse, routes)), "strength": _STRENGTHS[strength]}
    return msgspec.convert({**fields, **keys}, HopReport)


def _certificate(report: CertificateReport) -> Json:
    return {**msgspec.to_builtins(report), "holder": str(report.holder), "users": [str(user) for user in report.users]}


def _read_certificate(holder: str, users: tuple[str, ...], **fields: Any) -> CertificateReport:
    keys = {"holder": Key.parse(holder), "users": tuple(map(Key.parse, users))}
    return msgspec.convert({**fields, **keys}, CertificateReport)
