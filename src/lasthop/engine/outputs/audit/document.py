"""The audit as JSON of the admin API: objects by name; a backend as `service`, with its `kind` unless that is Service."""

from __future__ import annotations

from typing import Any

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.meta import Key
from lasthop.engine.outputs.audit.audit import Audit, AuditInputs
from lasthop.engine.outputs.audit.certificates import CertificateReport
from lasthop.engine.outputs.audit.hops import HopReport
from lasthop.engine.plan.strength import Strength

_KINDS = {"gateway": "Gateway", "policy": "BackendTLSPolicy", "waiver": "VerificationWaiver"}
"""The fields of a hop that hold an object, and its kind."""
_STRENGTHS = {each.label: each for each in Strength}


def document(audit: Audit) -> Json:
    return {
        "inputs": msgspec.to_builtins(audit.inputs),
        "hops": [_hop(hop) for hop in audit.hops],
        "certificates": [_certificate(each) for each in audit.certificates],
    }


def read(written: Json) -> Audit:
    hops = tuple(_read_hop(**each) for each in written["hops"])
    certificates = tuple(_read_certificate(**each) for each in written["certificates"])
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
    """Reads a hop. Its `manner` follows from the other fields, and is written for people."""
    keys: Json = {field: Key.read(_KINDS[field], path) for field, path in fields.items() if field in _KINDS}
    keys |= {"backend": Key.read(kind, service), "routes": tuple(map(Key.parse, routes)), "strength": _STRENGTHS[strength]}
    return msgspec.convert({**fields, **keys}, HopReport)


def _certificate(found: CertificateReport) -> Json:
    return {**msgspec.to_builtins(found), "holder": str(found.holder), "users": [str(user) for user in found.users]}


def _read_certificate(holder: str, users: tuple[str, ...], **fields: Any) -> CertificateReport:
    keys = {"holder": Key.parse(holder), "users": tuple(map(Key.parse, users))}
    return msgspec.convert({**fields, **keys}, CertificateReport)
